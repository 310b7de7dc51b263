#include "device/peak.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.h"
#include "device/select.h"

namespace danlu::device::peak_test {

TEST(Peak, IsPlausible) {
  ::unsetenv("DEVICE_TFLOPS");
  const double fp32 = peak_flops(at::kCPU, at::kFloat), bf16 = peak_flops(at::kCPU, at::kBFloat16);
  for (const double peak : {fp32, bf16}) {
    EXPECT_GT(peak, 1e7);  // an emulated processor has some 3e8; in GFLOP/s none has so many
    EXPECT_LT(peak, 1e15);
  }
  if (!multiplies_natively(at::kCPU, at::kBFloat16)) {
    EXPECT_EQ(bf16, fp32);
  }
  EXPECT_EQ(peak_flops(at::kCPU, at::kFloat), fp32);
}

TEST(Peak, TheEnvironmentReplacesTheMeasurement) {
  ::setenv("DEVICE_TFLOPS", "1.5", 1);
  EXPECT_DOUBLE_EQ(peak_flops(at::kCPU, at::kBFloat16), 1.5e12);
  for (const char* text : {"fast", "0", "-1", "1.5x", "inf"}) {
    ::setenv("DEVICE_TFLOPS", text, 1);
    EXPECT_THROW(peak_flops(at::kCPU, at::kFloat), UsageError) << text;
  }
  ::unsetenv("DEVICE_TFLOPS");
}

}  // namespace danlu::device::peak_test
