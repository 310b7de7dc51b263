#include "device/memory.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include "support/pretend_device.h"

namespace danlu::device {
namespace {

TEST(DeviceMemory, IsCountedWhereABackEndTellsIt) {
  const at::Device device = danlu::test::pretend_device(2);
  ASSERT_TRUE(count_memory(device));
  const int64_t before = memory(device);
  at::empty({5000}, at::device(device));
  EXPECT_EQ(peak_memory(device), before + 20000);
  reset_peak_memory(device);
  {
    const at::Tensor tensor = at::empty({1000}, at::device(device));
    EXPECT_EQ(memory(device), before + 4000);
  }
  EXPECT_EQ(memory(device), before);
  EXPECT_EQ(peak_memory(device), before + 4000);
  EXPECT_EQ(memory(danlu::test::pretend_device(3)), 0) << "each device for itself";
}

TEST(DeviceMemory, IsNothingWhereNobodyTellsIt) {
  const at::Device unknown(c10::DeviceType::XLA, 0);
  EXPECT_FALSE(count_memory(unknown));
  reset_peak_memory(unknown);
  EXPECT_EQ(memory(unknown) + peak_memory(unknown), 0);
}

}  // namespace
}  // namespace danlu::device
