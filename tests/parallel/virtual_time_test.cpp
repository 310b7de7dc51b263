// Clocks of ranks that are threads: every second here is one that a test spends or a link takes.
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "parallel/background.h"
#include "parallel/comm/local.h"

namespace danlu::parallel {
namespace virtual_time_test {

thread_local double spent_by_thread = 0;
double spent() { return spent_by_thread; }
void spend(double seconds) { spent_by_thread += seconds; }

/// 100 bytes a second and half a second within a node, a tenth of that and a second between nodes.
VirtualTime links(int64_t devices_per_node = 8) {
  return {.devices_per_node = devices_per_node,
          .node = {.bytes_per_s = 100, .latency_s = 0.5},
          .network = {.bytes_per_s = 10, .latency_s = 1},
          .processor_seconds = spent};
}

struct Seen {
  double now = 0;
  ExchangeTimes exchanges = {};
};

/// What each rank's clock shows after body(group of all, rank).
std::vector<Seen> run(int64_t ranks, const VirtualTime& time,
                      const std::function<void(const Group&, int64_t)>& body) {
  std::vector<Seen> seen(static_cast<size_t>(ranks));
  run_local_ranks(
      ranks,
      [&](World& world) {
        const auto group = world.make_group_of_all();
        body(*group, world.rank());
        const VirtualClock& clock = *VirtualClock::of_thread();
        seen[static_cast<size_t>(world.rank())] = {clock.now(), clock.exchanges()};
      },
      1, &time);
  return seen;
}

at::Tensor bytes(int64_t count) { return at::zeros({count}, at::kByte); }

TEST(VirtualTime, ARankReceivesWhenBothHaveComeAndTheLinkIsDone) {
  const auto seen = run(2, links(), [](const Group& group, int64_t rank) {
    spend(rank == 0 ? 1 : 0.25);
    at::Tensor what = bytes(400);
    group.pass_on(what, 0, 1);
  });
  EXPECT_DOUBLE_EQ(seen[0].now, 1 + 4.0);
  EXPECT_DOUBLE_EQ(seen[1].now, 1 + 4.0 + 0.5);
  // Rank 1 came 0.75 s early; the sender, which takes its time alone, waits for the link as well.
  EXPECT_DOUBLE_EQ(seen[1].exchanges.modelled, 4.5);
  EXPECT_DOUBLE_EQ(seen[1].exchanges.exposed, 4.5);
  EXPECT_DOUBLE_EQ(seen[1].exchanges.late, 0.75);
  EXPECT_DOUBLE_EQ(seen[0].exchanges.exposed, 4);
  EXPECT_DOUBLE_EQ(seen[0].exchanges.late, 0);
}

TEST(VirtualTime, MessagesOfARoundGoOneAfterAnother) {
  const auto gathered = run(3, links(), [](const Group& group, int64_t) {
    group.all_gather(bytes(200), 0);  // two to send and two to receive, in both directions at once
  });
  for (const Seen& rank : gathered) EXPECT_DOUBLE_EQ(rank.now, 2 * 2.0 + 0.5);
  const auto told = run(3, links(), [](const Group& group, int64_t) {
    at::Tensor what = bytes(200);
    group.broadcast(what, 0);
  });
  EXPECT_DOUBLE_EQ(told[0].now, 4);
  EXPECT_DOUBLE_EQ(told[1].now, 2.5);
  EXPECT_DOUBLE_EQ(told[2].now, 4.5);
}

TEST(VirtualTime, NodesAreJoinedByTheNetwork) {
  const auto seen = run(3, links(/*devices_per_node=*/2), [](const Group& group, int64_t) {
    at::Tensor what = bytes(200);
    group.broadcast(what, 0);
  });
  EXPECT_DOUBLE_EQ(seen[1].now, 2.5);
  EXPECT_DOUBLE_EQ(seen[2].now, 2 + 20 + 1);
}

// 1600 bytes over 4 ranks: 3/4 of them out and in for the sums, and again for their gathering.
TEST(VirtualTime, AnAllReduceTakesTheTextbooksBytes) {
  const auto seen = run(4, links(), [](const Group& group, int64_t rank) {
    if (rank == 2) spend(3);
    at::Tensor what = at::full({400}, 1.0F, at::kFloat);
    group.all_reduce_sum(what);
    EXPECT_EQ(what[7].item<float>(), 4);
  });
  for (const Seen& rank : seen) EXPECT_DOUBLE_EQ(rank.now, 3 + 2 * (12 + 0.5));
  EXPECT_DOUBLE_EQ(seen[0].exchanges.late, 3);
  EXPECT_DOUBLE_EQ(seen[2].exchanges.late, 0);
}

TEST(VirtualTime, TheNextPieceTravelsWhileOneIsSummed) {
  VirtualTime time = links();
  // 8 MiB in two pieces of two seconds each.
  time.node = {.bytes_per_s = 1 << 21, .latency_s = 0.5};
  const auto seen = run(2, time, [](const Group& group, int64_t) {
    at::Tensor what = at::zeros({1 << 21}, at::kFloat);
    group.all_reduce_sum(what);
  });
  for (const Seen& rank : seen) EXPECT_DOUBLE_EQ(rank.now, 4 + 0.5);
}

TEST(VirtualTime, WhatTheTransportDoesIsNotCounted) {
  const auto seen = run(2, {.processor_seconds = spent}, [](const Group& group, int64_t) {
    std::array<char, 4> memory{};
    {
      // The transport holds it, and lets it go, in the next exchange.
      const at::Tensor what =
          at::from_blob(memory.data(), {4}, [](void*) { spend(7); }, at::TensorOptions(at::kByte));
      group.all_gather(what, 0);
    }
    EXPECT_EQ(spent(), 0);
    group.barrier();
    EXPECT_EQ(spent(), 7);
  });
  for (const Seen& rank : seen) EXPECT_DOUBLE_EQ(rank.now, 0);
}

TEST(VirtualTime, AJobBeginsWhenItWasGivenAndTheLastIsOver) {
  run(1, links(), [](const Group&, int64_t) {
    const VirtualClock& clock = *VirtualClock::of_thread();
    Background beside([] {});
    spend(2);
    const Background::Job first = beside.run([] { spend(3); }, at::kCPU);
    const Background::Job second = beside.run([] { spend(0.5); }, at::kCPU);
    spend(1);
    first.get();
    EXPECT_DOUBLE_EQ(clock.now(), 5);
    second.get();
    EXPECT_DOUBLE_EQ(clock.now(), 5.5);
    spend(1);
    const Background::Job late = beside.run([] { spend(1); }, at::kCPU);
    spend(4);
    late.get();  // was over at 7.5
    EXPECT_DOUBLE_EQ(clock.now(), 10.5);
    EXPECT_DOUBLE_EQ(clock.exchanges().modelled, 0);
    EXPECT_DOUBLE_EQ(clock.exchanges().late, 2 + 0.5);
  });
}

TEST(VirtualTime, WhatComputingHidesIsNotWaitedFor) {
  const auto hidden = [](double computed) {
    return run(2, links(), [computed](const Group& group, int64_t) {
      Background beside([] {});
      const Background::Job job = beside.run(
          [&group] {
            at::Tensor what = bytes(350);
            group.all_reduce_sum(what);
          },
          at::kCPU);
      spend(computed);
      job.get();
    });
  };
  for (const Seen& rank : hidden(10)) {
    EXPECT_DOUBLE_EQ(rank.now, 10);
    EXPECT_DOUBLE_EQ(rank.exchanges.modelled, 4);
    EXPECT_DOUBLE_EQ(rank.exchanges.overlap(), 1);
  }
  for (const Seen& rank : hidden(1)) {
    EXPECT_DOUBLE_EQ(rank.now, 4);
    EXPECT_DOUBLE_EQ(rank.exchanges.exposed, 3);
    EXPECT_DOUBLE_EQ(rank.exchanges.overlap(), 0.25);
  }
}

// What the wall says of it must not be waited for: a sender that forgets what has left would
// otherwise go on from a moment that it has not reached.
TEST(VirtualTime, AJobIsOverWhenTheClockSaysSo) {
  run(1, links(), [](const Group&, int64_t) {
    Background beside([] {});
    const Background::Job job = beside.run([] { spend(3); }, at::kCPU);
    beside.run([] {}, at::kCPU).get();
    EXPECT_DOUBLE_EQ(VirtualClock::of_thread()->now(), 3);
    EXPECT_TRUE(job.is_over());
    const Background::Job longer = beside.run([] { spend(3); }, at::kCPU);
    std::atomic<bool> is_done = false;
    beside.run([&] { is_done = true; }, at::kCPU);
    while (!is_done) std::this_thread::yield();
    EXPECT_FALSE(longer.is_over());
    spend(3);
    EXPECT_TRUE(longer.is_over());
  });
}

TEST(VirtualTime, NobodyHasAClockUnasked) {
  run_local_ranks(2, [](World& world) {
    const auto group = world.make_group_of_all();
    EXPECT_EQ(VirtualClock::of_thread(), nullptr);
    Background beside([] {});
    beside
        .run(
            [&] {
              EXPECT_EQ(VirtualClock::of_thread(), nullptr);
              group->barrier();
            },
            at::kCPU)
        .get();
  });
  EXPECT_EQ(VirtualClock::of_thread(), nullptr);
}

}  // namespace virtual_time_test
}  // namespace danlu::parallel
