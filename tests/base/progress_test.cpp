#include "base/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace danlu {
namespace {

TEST(Format, Durations) {
  EXPECT_EQ(format_duration(1.24), "1.2s");
  EXPECT_EQ(format_duration(59.97), "1m00s");
  EXPECT_EQ(format_duration(200), "3m20s");
  EXPECT_EQ(format_duration(4 * 3600 + 5 * 60), "4h05m");
  EXPECT_EQ(format_duration(2 * 86400 + 3 * 3600), "2d03h");
  EXPECT_EQ(format_duration(NAN), "?");
}

TEST(Format, Counts) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000), "1,000");
  EXPECT_EQ(format_count(1234567), "1,234,567");
}

TEST(Format, Bytes) {
  EXPECT_EQ(format_bytes(999), "999 B");
  EXPECT_EQ(format_bytes(12300000), "12.3 MB");
  EXPECT_EQ(format_bytes(999960), "1.0 MB");
}

TEST(ProgressBar, OnAPipeItPrintsWholeLines) {
  testing::internal::CaptureStderr();
  {
    ProgressBar bar("rows", 4, "rows", 0.0);
    bar.update(1);
    bar.update(2, "drop 1");
    bar.finish();
    bar.finish();
  }
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  EXPECT_THAT(text, testing::HasSubstr("rows 1/4 rows 25.0%"));
  EXPECT_THAT(text, testing::HasSubstr("drop 1"));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("\r")));
}

TEST(ProgressBar, WithoutATotalThereIsNoPercentage) {
  testing::internal::CaptureStderr();
  ProgressBar bar("tokens", 0, "tokens", 0.0);
  bar.update(5);
  EXPECT_THAT(
      testing::internal::GetCapturedStderr(),
      testing::AllOf(testing::HasSubstr("tokens 5 tokens"), testing::Not(testing::HasSubstr("%"))));
}

}  // namespace
}  // namespace danlu
