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
