// Medians, and runs on a machine that is not always as fast.
#include "bench/sampling.h"

#include <gtest/gtest.h>

#include "bench/statistics.h"

namespace danlu::bench {
namespace {

TEST(Statistics, TheMedianIsTheMiddleOneOrTheMeanOfTwo) {
  EXPECT_DOUBLE_EQ(median({3}), 3);
  EXPECT_DOUBLE_EQ(median({9, 1, 2}), 2);
  EXPECT_DOUBLE_EQ(median({4, 1, 2, 90}), 3);
}

TEST(Statistics, SpreadIsRelativeToTheMedianAndMovedGoesBothWays) {
  EXPECT_DOUBLE_EQ(spread({10, 9, 12}), 0.3);
  EXPECT_DOUBLE_EQ(moved(100, 120), 0.2);
  EXPECT_DOUBLE_EQ(moved(120, 100), 0.2);
}

const Limits kMachine{
    .f32_flops = 100, .bf16_flops = 200, .read_bytes = 10, .copy_bytes = 12, .update_bytes = 16};

TEST(Roofline, TheSlowerOfMultiplyingAndMovingBounds) {
  // 300 multiplications at 100/s are 3 s; 20 bytes at 10/s are 2.
  const Work f32{300, false, 20, 0};
  EXPECT_DOUBLE_EQ(least_seconds(f32, kMachine), 3);
  EXPECT_EQ(bound_of(f32, kMachine), Bound::kCompute);
  const Work bf16{300, true, 20, 0};
  EXPECT_DOUBLE_EQ(least_seconds(bf16, kMachine), 2);
  EXPECT_EQ(bound_of(bf16, kMachine), Bound::kMemory);
}

TEST(Roofline, BytesReadAndWrittenGoAtTheSpeedOfUpdatesTheOthersAtThatOfReading) {
  // 8 of each at 16/s are 1 s; 10 more that are only read 1 s.
  EXPECT_DOUBLE_EQ(least_seconds({0, false, 18, 8}, kMachine), 2);
  EXPECT_DOUBLE_EQ(least_seconds({0, false, 8, 18}, kMachine), 2);
}

TEST(Roofline, WhereNoBf16IsMultipliedItsLimitIsThatOfF32) {
  Limits without = kMachine;
  without.bf16_flops = 0;
  EXPECT_DOUBLE_EQ(least_seconds({300, true, 0, 0}, without), 3);
  without.bf16_flops = 50;  // nor where more f32 is
  EXPECT_DOUBLE_EQ(least_seconds({300, true, 0, 0}, without), 3);
}

/// A machine whose peak is what a list says, one reading after the other; a run takes what its work
/// takes at the last reading.
struct Machine {
  std::vector<double> peaks;
  size_t readings = 0;
  int runs = 0;
  double run() {
    ++runs;
    return 1000 / peaks[readings - 1];
  }
  Limits gauge() {
    Limits limits = kMachine;
    limits.f32_flops = peaks[std::min(readings++, peaks.size() - 1)];
    return limits;
  }
};

std::vector<Sample> samples_on(Machine& machine, const Sampling& sampling) {
  return take_samples(
      {1000, false, 0, 0}, [&] { return machine.run(); }, [&] { return machine.gauge(); },
      sampling);
}

TEST(Sampling, ARunWhosePeakMovedIsRepeated) {
  Machine machine{{100, 100, 50, 50, 50}};
  const auto samples = samples_on(machine, {.samples = 3, .attempts = 4, .may_move = 0.15});
  ASSERT_EQ(samples.size(), 3u);
  // The second run ended at half the peak, so there was a fourth.
  EXPECT_EQ(machine.runs, 4);
  for (const Sample& sample : samples) {
    EXPECT_TRUE(sample.is_steady);
    EXPECT_DOUBLE_EQ(share_of_limit({1000, false, 0, 0}, sample), 1.0);
  }
}

TEST(Sampling, WhatMovesNoMoreThanIsAllowedIsNotRepeated) {
  Machine machine{{100, 114, 100, 114}};
  EXPECT_EQ(samples_on(machine, {.samples = 3, .attempts = 4, .may_move = 0.15}).size(), 3u);
  EXPECT_EQ(machine.runs, 3);
}

TEST(Sampling, AMachineThatNeverStandsStillIsMarkedUnsteadyInTheEnd) {
  Machine machine;
  for (int i = 0; i < 100; ++i) machine.peaks.push_back(i % 2 ? 100 : 50);
  const auto samples = samples_on(machine, {.samples = 2, .attempts = 3, .may_move = 0.15});
  EXPECT_EQ(machine.runs, 6);
  for (const Sample& sample : samples) EXPECT_FALSE(sample.is_steady);
}

TEST(Sampling, OnlyTheLimitThatBoundsTheWorkNeedsToStandStill) {
  // The memory's speed halves at every reading; the work is bound by multiplications.
  double memory = 1e9;
  const auto gauge = [&] {
    Limits limits = kMachine;
    limits.read_bytes = memory /= 2;
    return limits;
  };
  for (const Sample& sample : take_samples({1000, false, 1, 0}, [] { return 10.0; }, gauge, {}))
    EXPECT_TRUE(sample.is_steady);
}

}  // namespace
}  // namespace danlu::bench
