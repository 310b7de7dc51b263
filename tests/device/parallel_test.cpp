#include "device/parallel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace danlu::device {
namespace {

class Threads {
 public:
  explicit Threads(int count) : before_(at::get_num_threads()) { at::set_num_threads(count); }
  ~Threads() { at::set_num_threads(before_); }

 private:
  const int before_;
};

TEST(ParallelFor, CoversTheRangeOnceInPartsNotBelowTheGrain) {
  for (const int threads : {1, 2, 3, 5}) {
    const Threads in_use(threads);
    for (const int64_t count : {0, 1, 2, 5, 7, 64, 1000}) {
      for (const int64_t grain : {0, 1, 3, 64}) {
        std::vector<std::atomic<int>> seen(static_cast<size_t>(count));
        std::atomic<int> parts{0}, small{0};
        parallel_for(10, 10 + count, grain, [&](int64_t begin, int64_t end) {
          ++parts;
          small += end - begin < grain && end - begin < count;
          for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i - 10)];
        });
        for (const auto& times : seen) ASSERT_EQ(times, 1);
        EXPECT_LE(parts, threads);
        EXPECT_LE(small, 1) << "but for the last";
        if (count >= threads && grain <= 1) {
          EXPECT_GE(parts, std::min<int64_t>(threads, 2)) << count << " " << grain;
        }
      }
    }
  }
}

TEST(ParallelEach, MeetsEachTaskOnceAndDividesWorkNotTasks) {
  std::vector<int64_t> growing(40, 1);
  growing.resize(80, 9);
  for (const int threads : {1, 2, 3, 5}) {
    const Threads in_use(threads);
    for (const std::vector<int64_t>& work :
         {std::vector<int64_t>{}, {7}, growing, {90, 1, 1, 1, 50, 1, 1}}) {
      std::vector<int64_t> before{0};
      for (const int64_t more : work) before.push_back(before.back() + more);
      std::vector<std::atomic<int>> seen(work.size()), once(work.size());
      std::mutex mutex;
      std::map<std::thread::id, int64_t> of_thread;
      parallel_parts_by_work(
          work.size(), [&](size_t i) { return before[i]; },
          [&](size_t first, size_t past) {
            EXPECT_LT(first, past);
            for (size_t i = first; i < past; ++i) ++seen.at(i);
            const std::lock_guard lock(mutex);
            of_thread[std::this_thread::get_id()] += before[past] - before[first];
          });
      parallel_each(work.size(), [&](size_t i) { ++once[i]; });
      for (size_t i = 0; i < work.size(); ++i) ASSERT_EQ(seen[i] * 10 + once[i], 11) << i;
      const int64_t share = (before.back() + threads - 1) / threads;
      for (const auto& [id, own] : of_thread)
        EXPECT_LE(own, share + *std::max_element(work.begin(), work.end())) << threads;
    }
  }
}

TEST(ParallelRanges, MeetsEachPlaceOnceAndDividesThemAsOneLoop) {
  for (const int threads : {1, 2, 3, 5}) {
    const Threads in_use(threads);
    for (const std::vector<int64_t>& sizes :
         {std::vector<int64_t>{}, {0}, {9}, {896, 128, 128}, {1, 0, 0, 700, 3, 0}, {5, 5, 5, 5}}) {
      std::vector<std::vector<std::atomic<int>>> seen;
      int64_t all = 0;
      for (const int64_t size : sizes) {
        seen.emplace_back(static_cast<size_t>(size));
        all += size;
      }
      std::mutex mutex;
      std::map<std::thread::id, int64_t> of_thread;
      parallel_ranges(
          sizes.size(), /*grain=*/2, [&](size_t i) { return sizes[i]; },
          [&](size_t i, int64_t begin, int64_t end) {
            EXPECT_LT(begin, end);
            for (int64_t place = begin; place < end; ++place)
              ++seen.at(i).at(static_cast<size_t>(place));
            const std::lock_guard lock(mutex);
            of_thread[std::this_thread::get_id()] += end - begin;
          });
      for (const auto& range : seen)
        for (const std::atomic<int>& times : range) ASSERT_EQ(times, 1);
      for (const auto& [id, own] : of_thread) EXPECT_LE(own, (all + threads - 1) / threads);
    }
  }
}

TEST(ParallelFor, ALoopInsideALoopIsNotDivided) {
  const Threads in_use(3);
  std::atomic<int> inner{0}, torch{0};
  parallel_for(0, 3, 1, [&](int64_t, int64_t) {
    parallel_for(0, 100, 1, [&](int64_t, int64_t) { ++inner; });
    at::parallel_for(0, 100, 1, [&](int64_t, int64_t) { ++torch; });
  });
  EXPECT_EQ(inner, 3);
  EXPECT_EQ(torch, 3);
  EXPECT_EQ(at::get_num_threads(), 3) << "the next loop is divided again";
}

TEST(ParallelFor, WhatAPartThrowsReachesTheCaller) {
  const Threads in_use(2);
  const auto fails = [](int64_t begin, int64_t) {
    if (begin > 0) throw std::out_of_range("second");
  };
  EXPECT_THROW(parallel_for(0, 2, 1, fails), std::out_of_range);
  std::atomic<int> parts{0};
  parallel_for(0, 2, 1, [&](int64_t, int64_t) { ++parts; });
  EXPECT_EQ(parts, 2) << "the next loop is divided again";
}

}  // namespace
}  // namespace danlu::device
