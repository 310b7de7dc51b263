#include "optim/loss_scaler.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace danlu::optim {
namespace loss_scaler_test {

LossScaleConfig quick() {
  LossScaleConfig config;
  config.window = 3;
  return config;
}

TEST(LossScaler, StartsAtTwoToTheSixteen) {
  EXPECT_EQ(LossScaler(LossScaleConfig{}).scale(), 65536.0);
}

TEST(LossScaler, WithoutConfigTheScaleIsOneForEver) {
  LossScaler scaler;
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 1.0);
}

TEST(LossScaler, HysteresisForgivesTheFirstOverflow) {
  LossScaler scaler(quick());
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 65536.0);
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 32768.0);
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 16384.0);
}

TEST(LossScaler, AWindowOfGoodStepsDoublesAndRestoresTheHysteresis) {
  LossScaler scaler(quick());
  scaler.update(true);
  for (int i = 0; i < 3; ++i) scaler.update(false);
  EXPECT_EQ(scaler.scale(), 131072.0);
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 131072.0);
}

TEST(LossScaler, ASearchHalvesAtOnceUntilAStepHasSucceeded) {
  LossScaler scaler(quick());
  EXPECT_TRUE(scaler.is_searching());
  EXPECT_TRUE(scaler.search_lower());  // no hysteresis
  EXPECT_EQ(scaler.scale(), 32768.0);
  scaler.update(true);  // a loss that is not finite: such a step is spent, and the search goes on
  EXPECT_TRUE(scaler.is_searching());
  EXPECT_EQ(scaler.scale(), 32768.0);
  scaler.update(false);
  EXPECT_FALSE(scaler.is_searching());
  scaler.update(true);  // the last of two in a window
  EXPECT_EQ(scaler.scale(), 16384.0);
  EXPECT_FALSE(scaler.is_searching());
}

TEST(LossScaler, ASearchEndsAtTheMinimum) {
  LossScaleConfig config = quick();
  config.initial_scale = 6;
  config.min_scale = 2;
  LossScaler scaler(config);
  EXPECT_TRUE(scaler.search_lower());  // 3
  EXPECT_TRUE(scaler.search_lower());  // 2, which is more than 1.5
  EXPECT_EQ(scaler.scale(), 2.0);
  EXPECT_FALSE(scaler.search_lower());
  EXPECT_EQ(scaler.scale(), 2.0);
}

TEST(LossScaler, AFixedScaleIsNotSearched) {
  LossScaleConfig config = quick();
  config.fixed_scale = 128;
  EXPECT_FALSE(LossScaler(config).is_searching());
  EXPECT_FALSE(LossScaler().is_searching());
}

TEST(LossScaler, ASavedSearchGoesOn) {
  for (const bool has_succeeded : {false, true}) {
    LossScaler a(quick());
    a.search_lower();
    if (has_succeeded) a.update(false);
    LossScaler b(quick());
    b.load_state(a.state());
    EXPECT_EQ(b.is_searching(), !has_succeeded);
    EXPECT_EQ(b.state(), a.state());
  }
  // As versions without a search have saved it, perhaps right behind a step that was skipped late
  // in a run: a step whose gradients overflow at any scale is skipped, as it was then.
  for (const int64_t good_steps : {0, 7}) {
    LossScaler old(quick());
    old.load_state({{"scale", 1024}, {"steps_since_overflow", good_steps}, {"hysteresis_left", 1}});
    EXPECT_FALSE(old.is_searching());
  }
}

TEST(LossScaler, RejectsAScaleThatNoFloatHolds) {
  LossScaleConfig config;
  config.initial_scale = 1e39;
  EXPECT_THROW(config.validate(), UsageError);
  config.initial_scale = 3e38;
  EXPECT_NO_THROW(config.validate());
  config.fixed_scale = 1e39;
  EXPECT_THROW(config.validate(), UsageError);
}

TEST(LossScaler, NeverFallsBelowTheMinimum) {
  LossScaler scaler(quick());
  for (int i = 0; i < 100; ++i) scaler.update(true);
  EXPECT_EQ(scaler.scale(), 1.0);
}

TEST(LossScaler, SavedStateContinues) {
  LossScaler a(quick());
  a.update(true);
  a.update(false);
  a.update(false);
  LossScaler b(quick());
  b.load_state(a.state());
  a.update(false);
  b.update(false);
  EXPECT_EQ(a.scale(), b.scale());
  EXPECT_EQ(b.scale(), 131072.0);
}

TEST(LossScaler, RejectsAnImpossibleWindow) {
  LossScaleConfig config;
  config.window = 0;
  EXPECT_THROW(config.validate(), UsageError);
}

}  // namespace loss_scaler_test
}  // namespace danlu::optim
