// The arithmetic of a run: steps, epochs, warm-up.
#include "settings/run_plan.h"

#include <gtest/gtest.h>

namespace danlu::settings {
namespace {

TEST(RunPlan, WarmupIsRoundedUpAndEpochsCountSteps) {
  TrainConfig config;
  config.batch.epochs = 3;
  config.schedule.warmup_ratio = 0.03;
  const RunPlan plan = plan_run(config, 1000, data::LastBatch::kPartial);
  EXPECT_EQ(plan.total_steps, 189);
  EXPECT_EQ(plan.schedule.warmup_steps, 6);  // ceil(5.67)
  EXPECT_EQ(plan.batch_arithmetic, "1 sample × 16 accumulation × 1 process = 16 samples a step");
}

TEST(RunPlan, ARatioIsRoundedAsTheTrainerDoesAndAFractionNotAtAll) {
  TrainConfig config;
  config.batch.max_steps = 100;
  config.schedule.warmup_ratio = 0.07;  // 100 * 0.07 is more than 7 in binary
  EXPECT_EQ(plan_run(config, 100, data::LastBatch::kPartial).schedule.warmup_steps, 8);
  config.batch.max_steps = 150;
  config.schedule.warmup_fraction = 0.01;
  EXPECT_EQ(plan_run(config, 100, data::LastBatch::kWrap).schedule.warmup_steps, 1.5);
  config.schedule.scales_by_sample = true;
  EXPECT_EQ(plan_run(config, 100, data::LastBatch::kWrap).schedule.inverse_scale, 1.0 / 16);
}

TEST(RunPlan, StepsThatRunOnIntoTheNextEpochCountSamples) {
  TrainConfig config;
  config.batch.epochs = 10;
  // 310 samples are 19.4 steps of 16, not 10 times the one whole step of an epoch.
  EXPECT_EQ(plan_run(config, 31, data::LastBatch::kWrap).total_steps, 20);
  EXPECT_EQ(plan_run(config, 31, data::LastBatch::kPartial).total_steps, 20);
  EXPECT_EQ(plan_run(config, 31, data::LastBatch::kDrop).total_steps, 20);
  config.batch.micro_batch_size = 2;
  config.batch.accumulation = 3;
  config.batch.ranks = 4;
  EXPECT_EQ(plan_run(config, 31, data::LastBatch::kDrop).total_steps, 10) << "24 of 31 in one step";
}

TEST(RunPlan, SaysHowManyEpochsTheStepsGoThrough) {
  TrainConfig config;
  config.batch.max_steps = 31;
  EXPECT_DOUBLE_EQ(plan_run(config, 31, data::LastBatch::kWrap).epochs(), 16.0);
  EXPECT_DOUBLE_EQ(plan_run(config, 31, data::LastBatch::kPartial).epochs(), 15.5);
  EXPECT_DOUBLE_EQ(plan_run(config, 31, data::LastBatch::kDrop).epochs(), 15.5);
  EXPECT_DOUBLE_EQ(plan_run(config, 3, data::LastBatch::kWrap).epochs(), 31 * 16 / 3.0);
}

}  // namespace
}  // namespace danlu::settings
