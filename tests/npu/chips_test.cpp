// Which chips are refused, by the names that CANN gives them.
#include "npu/chips.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace danlu::npu::test {
namespace {

TEST(NpuChips, ThoseThatCannHasNoOperatorsForAreRefused) {
  for (const char* chip :
       {"Ascend910", "Ascend910A", "Ascend910B", "Ascend910ProA", "Ascend910ProB",
        "Ascend910PremiumA", "Ascend310", "Ascend310P1", "Ascend310P3", "Ascend310B4"}) {
    EXPECT_THAT(why_not_on(chip), testing::HasSubstr(std::string(chip) + ":"));
  }
}

TEST(NpuChips, OthersAreNotAndNamesThatNobodyKnowsYet) {
  for (const char* chip :
       {"Ascend910B1", "Ascend910B2C", "Ascend910B3", "Ascend910B4-1", "Ascend910_9391",
        "Ascend910C", "Ascend910D1", "Ascend950PR", "Ascend", "Ascend31", ""}) {
    EXPECT_EQ(why_not_on(chip), "") << chip;
  }
}

}  // namespace
}  // namespace danlu::npu::test
