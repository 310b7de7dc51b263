// tests/support/watched_ranks.h: ranks as threads, each with its own connections and its watch.
#pragma once
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "base/free_port.h"
#include "parallel/comm/c10d.h"
#include "parallel/comm/local.h"
#include "support/comes_true.h"

namespace danlu::test {

/// Keeps the verdicts that reach ranks, which end no process.
struct WatchedRanks {
  std::mutex mutex;
  std::map<int64_t, parallel::Verdict> verdicts;

  /// Returns when this many ranks have one, however long a busy machine takes.
  void wait_for(size_t count) {
    EXPECT_TRUE(comes_true([&] {
      const std::lock_guard lock(mutex);
      return verdicts.size() >= count;
    })) << "the ranks heard of nothing";
  }
  void run(int64_t ranks, double silence_s, double timeout_s,
           const std::function<void(parallel::World&)>& body) {
    const int64_t port = free_port().value();
    parallel::run_local_ranks(ranks, [&](parallel::World& place) {
      parallel::C10dJob job{
          .rank = place.rank(),
          .size = ranks,
          .master_address = "127.0.0.1",
          .master_port = port,
          .timeout = std::chrono::milliseconds(static_cast<int64_t>(timeout_s * 1000)),
          .silence_s = silence_s,
          .end = [this, rank = place.rank()](const parallel::Verdict& verdict) {
            const std::lock_guard lock(mutex);
            verdicts[rank] = verdict;
          }};
      const auto world = parallel::connect_c10d(job);
      body(*world);
    });
  }
};

}  // namespace danlu::test
