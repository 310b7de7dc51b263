#include "settings/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "base/json.h"

namespace danlu::settings {
namespace schedule_test {

Json goldens() {
  return read_json_file(std::string(DANLU_SOURCE_DIR) + "/tests/optim/goldens.json");
}

ScheduleConfig make(ScheduleKind kind, int64_t warmup, int64_t total) {
  ScheduleConfig config;
  config.kind = kind;
  config.lr = 1.0;
  config.warmup_steps = warmup;
  config.total_steps = total;
  return config;
}

TEST(Schedule, CosineEqualsTorch) {
  ScheduleConfig config = make(ScheduleKind::kCosine, 0, 10);
  config.lr = 1e-3;
  config.min_lr = 1e-5;
  const auto want = goldens().at("cosine_1e-3_1e-5_10").get<std::vector<double>>();
  for (size_t t = 0; t < want.size(); ++t)
    EXPECT_NEAR(learning_rate_at(config, t), want[t], 1e-12) << t;
}

TEST(Schedule, PolynomialEqualsTorch) {
  ScheduleConfig config = make(ScheduleKind::kPolynomial, 0, 10);
  config.lr = 1e-3;
  config.power = 2;
  const auto want = goldens().at("polynomial_1e-3_0_10_power_2").get<std::vector<double>>();
  for (size_t t = 0; t < want.size(); ++t)
    EXPECT_NEAR(learning_rate_at(config, t), want[t], 1e-12) << t;
}

TEST(Schedule, LinearWarmsUpFromZeroAndEndsAtZero) {
  const ScheduleConfig config = make(ScheduleKind::kLinear, 4, 12);
  EXPECT_EQ(learning_rate_at(config, 0), 0.0);
  EXPECT_EQ(learning_rate_at(config, 1), 0.25);
  EXPECT_EQ(learning_rate_at(config, 4), 1.0);
  EXPECT_EQ(learning_rate_at(config, 8), 0.5);  // (12 - 8) / (12 - 4)
  EXPECT_EQ(learning_rate_at(config, 12), 0.0);
}

TEST(Schedule, CosineReachesHalfOfTheSpanInTheMiddleAndStaysAtMinLrAfterTheEnd) {
  ScheduleConfig config = make(ScheduleKind::kCosine, 2, 12);
  config.min_lr = 0.2;
  EXPECT_NEAR(learning_rate_at(config, 7), 0.6, 1e-15);
  EXPECT_NEAR(learning_rate_at(config, 30), 0.2, 1e-15);
}

TEST(Schedule, InverseSqrtHalvesAtFourTimesTheWarmup) {
  const ScheduleConfig config = make(ScheduleKind::kInverseSqrt, 100, 1000);
  EXPECT_EQ(learning_rate_at(config, 100), 1.0);
  EXPECT_EQ(learning_rate_at(config, 400), 0.5);
}

TEST(Schedule, InverseSqrtWithoutWarmupUsesTenThousandSteps) {
  const ScheduleConfig config = make(ScheduleKind::kInverseSqrt, 0, 100000);
  EXPECT_EQ(learning_rate_at(config, 0), 1.0);
  EXPECT_NEAR(learning_rate_at(config, 30000), 0.5, 1e-15);  // sqrt(10000 / 40000)
}

TEST(Schedule, MegatronsInverseSqrtCountsSamplesAndEndsAtMinLr) {
  ScheduleConfig config = make(ScheduleKind::kInverseSqrt, 0, 10);
  config.min_lr = 0.01;
  config.inverse_scale = 1.0 / 16;  // a step has 16 samples: lr / sqrt(samples)
  EXPECT_EQ(learning_rate_at(config, 0), 1.0);
  EXPECT_NEAR(learning_rate_at(config, 1), 1 / std::sqrt(16.0), 1e-15);
  EXPECT_NEAR(learning_rate_at(config, 4), 1 / std::sqrt(64.0), 1e-15);
  EXPECT_NEAR(learning_rate_at(config, 10), 1 / std::sqrt(160.0), 1e-15);
  EXPECT_EQ(learning_rate_at(config, 11), 0.01);
  config.warmup_steps = 4;
  EXPECT_EQ(learning_rate_at(config, 4), 1.0);
  EXPECT_NEAR(learning_rate_at(config, 9), 2.0 / 3.0, 1e-15);
}

TEST(Schedule, AWarmupOfOneAndAHalfUpdatesIsNotRounded) {
  ScheduleConfig config = make(ScheduleKind::kLinear, 0, 150);
  config.warmup_steps = 1.5;  // 0.01 of 150 in Megatron, which counts samples
  EXPECT_NEAR(learning_rate_at(config, 1), 1 / 1.5, 1e-15);
  EXPECT_NEAR(learning_rate_at(config, 2), 1 - 0.5 / 148.5, 1e-15);
}

TEST(Schedule, WarmupStableDecayHoldsThePeakThenDecays) {
  ScheduleConfig config = make(ScheduleKind::kWarmupStableDecay, 10, 100);
  config.decay_steps = 20;
  EXPECT_EQ(learning_rate_at(config, 10), 1.0);
  EXPECT_EQ(learning_rate_at(config, 80), 1.0);
  EXPECT_NEAR(learning_rate_at(config, 90), 0.5, 1e-15);
  EXPECT_EQ(learning_rate_at(config, 100), 0.0);
  config.decay_ramp = Ramp::kOneMinusSqrt;
  EXPECT_NEAR(learning_rate_at(config, 85), 0.5, 1e-15);  // 1 - sqrt(5 / 20)
}

TEST(Schedule, DeepSpeedWarmupIsLogarithmicAndNeverShorterThanTwoSteps) {
  ScheduleConfig config = make(ScheduleKind::kWarmupLr, 8, 100);
  config.warmup_ramp = Ramp::kLog;
  EXPECT_EQ(learning_rate_at(config, 0), 0.0);
  EXPECT_NEAR(learning_rate_at(config, 1), 1.0 / 3.0, 1e-15);  // ln 2 / ln 8
  EXPECT_EQ(learning_rate_at(config, 8), 1.0);
  EXPECT_EQ(learning_rate_at(config, 99), 1.0);
  config.warmup_steps = 0;
  EXPECT_EQ(learning_rate_at(config, 0), 0.0);
  EXPECT_EQ(learning_rate_at(config, 1), 1.0);  // ln 2 / ln 2
}

TEST(Schedule, DeepSpeedWarmupDecayEndsAtZero) {
  ScheduleConfig config = make(ScheduleKind::kWarmupDecayLr, 4, 8);
  EXPECT_EQ(learning_rate_at(config, 2), 0.5);
  EXPECT_EQ(learning_rate_at(config, 6), 0.5);
  EXPECT_EQ(learning_rate_at(config, 8), 0.0);
}

// DeepSpeed: rate = min + (max - min) * (total - step) / (total - max(2, warmup)).
TEST(Schedule, DeepSpeedWarmupDecayEndsAtTheRateThatTheWarmupStartsFrom) {
  ScheduleConfig config = make(ScheduleKind::kWarmupDecayLr, 2, 10);
  config.lr = 1e-3;
  config.start_lr = 5e-4;
  EXPECT_NEAR(learning_rate_at(config, 0), 5e-4, 1e-18);
  EXPECT_NEAR(learning_rate_at(config, 2), 1e-3, 1e-18);
  EXPECT_NEAR(learning_rate_at(config, 9), 5.625e-4, 1e-18);
  EXPECT_NEAR(learning_rate_at(config, 10), 5e-4, 1e-18);
  EXPECT_NEAR(learning_rate_at(config, 99), 5e-4, 1e-18);
}

TEST(Schedule, DeepSpeedDecaysOverWhatAWarmupOfTwoLeaves) {
  for (const int64_t warmup : {0, 1, 2}) {
    const ScheduleConfig config = make(ScheduleKind::kWarmupDecayLr, warmup, 10);
    EXPECT_EQ(learning_rate_at(config, 1), 0.5) << warmup;
    EXPECT_EQ(learning_rate_at(config, 2), 1.0) << warmup;
    EXPECT_EQ(learning_rate_at(config, 8), 0.25) << warmup;
  }
  // Total steps within the warm-up: DeepSpeed divides by at least 1.
  EXPECT_EQ(learning_rate_at(make(ScheduleKind::kWarmupDecayLr, 4, 3), 4), 0.0);
}

// DeepSpeed: rate = peak * (low + (1 - low) * (1 + cos(pi * (step - warmup + 1) / (total -
// warmup))) / 2) behind a warm-up of peak * (from + (1 - from) * ln(step + 1) / ln(warmup)).
TEST(Schedule, DeepSpeedWarmupCosineIsOneStepAhead) {
  ScheduleConfig config = make(ScheduleKind::kWarmupCosineLr, 8, 14);
  config.lr = 2.0;
  config.start_lr = 0.5;
  config.min_lr = 0.2;
  config.warmup_ramp = Ramp::kLog;
  EXPECT_NEAR(learning_rate_at(config, 0), 0.5, 1e-15);
  EXPECT_NEAR(learning_rate_at(config, 1), 1.0, 1e-15);   // 0.5 + 1.5 * ln 2 / ln 8
  EXPECT_NEAR(learning_rate_at(config, 7), 2.0, 1e-15);   // ln 8 / ln 8
  EXPECT_NEAR(learning_rate_at(config, 9), 1.55, 1e-15);  // cos 60° = 1/2: 0.2 + 1.8 * 3/4
  EXPECT_NEAR(learning_rate_at(config, 10), 1.1, 1e-15);  // cos 90° = 0
  EXPECT_NEAR(learning_rate_at(config, 13), 0.2, 1e-15);  // cos 180°, a step before the end
  EXPECT_NEAR(learning_rate_at(config, 99), 0.2, 1e-15);
  config.warmup_ramp = Ramp::kLinear;
  EXPECT_NEAR(learning_rate_at(config, 4), 1.25, 1e-15);
  config.warmup_steps = 0;  // never shorter than two
  EXPECT_NEAR(learning_rate_at(config, 1), 1.25, 1e-15);
  config.total_steps = 1;  // within the warm-up: DeepSpeed divides by at least 1
  EXPECT_NEAR(learning_rate_at(config, 2), 0.2, 1e-15);
  EXPECT_EQ(schedule_from_name("WarmupCosineLR"), ScheduleKind::kWarmupCosineLr);
}

TEST(Schedule, UnknownNameSuggestsTheNearest) {
  try {
    schedule_from_name("cosin");
    FAIL() << "must throw";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("unknown learning-rate schedule 'cosin'"),
              std::string::npos);
    EXPECT_EQ(error.hint(), "did you mean 'cosine'?");
  }
}

TEST(Schedule, RejectsAMinimumAboveThePeak) {
  ScheduleConfig config = make(ScheduleKind::kCosine, 0, 10);
  config.min_lr = 2.0;
  EXPECT_THROW(config.validate(), UsageError);
}

}  // namespace schedule_test
}  // namespace danlu::settings
