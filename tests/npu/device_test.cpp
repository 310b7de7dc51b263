// Memory, copies, streams and events of NPUs.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "device/memory.h"
#include "device/npu.h"
#include "device/select.h"
#include "device/stream.h"
#include "npu/support.h"
#include "ops/backend.h"

namespace danlu::npu::test {
namespace {

TEST(NpuDevice, IsNamedAndSaysThatItIsSimulated) {
  if (is_on_card()) GTEST_SKIP() << "asks the simulator";
  EXPECT_EQ(device::name_of(npu()), "npu:0");
  EXPECT_THAT(device::arithmetic_of(npu(), at::kBFloat16),
              testing::StartsWith("NPU SIMULATOR Ascend910B"));
  EXPECT_THROW(device::select("npu:99"), DeviceError);
}

TEST(NpuDevice, CopiesBothWaysWhateverTheTypesAndStrides) {
  const at::Tensor x = normal({6, 8}, 1);
  EXPECT_TRUE(x.to(npu()).to(at::kCPU).equal(x));
  EXPECT_TRUE(x.t().to(npu()).to(at::kCPU).equal(x.t()));
  const at::Tensor there = x.to(npu());
  EXPECT_TRUE(there.narrow(1, 3, 2).to(at::kCPU).equal(x.narrow(1, 3, 2)));
  EXPECT_TRUE(there.t().contiguous().to(at::kCPU).equal(x.t()));
  EXPECT_TRUE(there.to(at::kBFloat16).to(at::kCPU).equal(x.to(at::kBFloat16)));
  EXPECT_TRUE(there.clone().to(at::kCPU, at::kHalf).equal(x.to(at::kHalf)));
  there.narrow(1, 0, 3).copy_(at::ones({3}, at::kLong));
  EXPECT_TRUE(there.to(at::kCPU).narrow(1, 0, 3).eq(1).all().item<bool>());
  EXPECT_TRUE(there.to(at::kCPU).narrow(1, 3, 5).equal(x.narrow(1, 3, 5)));
  EXPECT_EQ(at::arange(5, at::kLong).to(npu())[3].item<int64_t>(), 3);
  const at::Tensor many = at::arange(5 << 20, at::kInt);  // in more than one piece
  EXPECT_TRUE(many.to(npu()).to(at::kCPU).equal(many));
  const at::Tensor grown = there.clone().resize_({9, 8});
  EXPECT_TRUE(grown.narrow(0, 0, 6).to(at::kCPU).equal(there.to(at::kCPU)));
}

TEST(NpuDevice, FillsWithNumbers) {
  const at::Tensor x = at::empty({4, 6}, at::device(npu()).dtype(at::kFloat));
  EXPECT_TRUE(x.zero_().to(at::kCPU).eq(0).all().item<bool>());
  x.narrow(1, 2, 3).fill_(2.5);
  EXPECT_EQ(x.to(at::kCPU).sum().item<float>(), 2.5F * 12);
  x.t()[0].zero_();
  EXPECT_EQ(x.to(at::kCPU).sum().item<float>(), 2.5F * 12) << "and nothing beside it";
  EXPECT_EQ(at::full({3}, 7, x.options().dtype(at::kLong))[1].item<int64_t>(), 7);
}

TEST(NpuDevice, CountsTheBytesOfTensorsAndUsesTheirMemoryAgain) {
  if (is_on_card()) GTEST_SKIP() << "asks the simulator";
  const int64_t before = device::memory(npu());
  device::reset_peak_memory(npu());
  {
    const at::Tensor x = at::zeros({1000}, at::device(npu()).dtype(at::kFloat));
    EXPECT_EQ(device::memory(npu()) - before, 4000);
  }
  EXPECT_EQ(device::memory(npu()), before);
  EXPECT_EQ(device::peak_memory(npu()) - before, 4000);
  const int64_t taken = counter("allocations");
  ASSERT_GT(taken, 0);
  for (int i = 0; i < 50; ++i) {
    const at::Tensor x = at::zeros({1000 + i}, at::device(npu()).dtype(at::kFloat));
  }
  EXPECT_EQ(counter("allocations"), taken);
}

TEST(NpuDevice, StreamsWaitForEventsAndMemoryForStreams) {
  const auto first = device::Stream::current(npu()), second = device::Stream::beside(npu());
  for (int round = 0; round < 30; ++round) {
    const at::Tensor x = at::full({1 << 14}, 1.0, at::device(npu()).dtype(at::kFloat));
    at::Tensor y;
    {
      const device::Stream::InForce here(second);
      second.wait_for(first.record());
      y = x.clone();
      second.hold(x);
    }
    first.wait_for(second.record());
    first.hold(y);
    EXPECT_EQ(y.to(at::kCPU).sum().item<float>(), 1 << 14);
  }
  const device::Event event = second.record();
  second.synchronize();
  EXPECT_TRUE(event.is_over());
}

TEST(NpuDevice, MemoryWaitsForTheStreamThatHoldsIt) {
  const auto first = device::Stream::current(npu()), second = device::Stream::beside(npu());
  const auto full = [](double value) {
    return at::full({1 << 14}, value, at::device(npu()).dtype(at::kFloat));
  };
  for (int round = 0; round < 20; ++round) {
    at::Tensor x = full(1.0), y;
    {
      const device::Stream::InForce here(second);
      second.wait_for(first.record());
      y = x.clone();
      second.hold(x);
    }
    x = at::Tensor();
    const at::Tensor z = full(2.0);  // where x was, if nobody held it
    second.synchronize();
    EXPECT_EQ(y.to(at::kCPU).sum().item<float>(), 1 << 14);
    EXPECT_EQ(z.to(at::kCPU).sum().item<float>(), 2 << 14);
  }
}

TEST(NpuDevice, IsAnyThreads) {
  std::thread other([] {
    const at::Tensor x = normal({100}, 3);
    EXPECT_TRUE(x.to(npu()).to(at::kCPU).equal(x));
  });
  other.join();
}

TEST(NpuDevice, RefusesByNameWhatItDoesNotHave) {
  const at::Tensor x = at::zeros({3}, at::device(npu()));
  try {
    at::erfinv(x);
    FAIL() << "it was computed";
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("aten::erfinv"));
  }
}

const ops::Backend& device_table() { return ops::backend_of(npu().type()); }

/// `work` gives true in a process of its own, where nothing was asked of the device yet.
template <typename Work>
void expect_in_fresh_process(const Work& work) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(std::_Exit(work() ? 0 : 1), testing::ExitedWithCode(0), "");
}

template <typename Work>
bool fails(const std::string& faults, const Work& work) {
  const Faults planted(faults);
  try {
    work();
  } catch (const Error&) {
    return true;
  }
  return false;
}

TEST(NpuDevice, ACopyThatFailsLeavesNothingBehind) {
  if (is_on_card()) GTEST_SKIP() << "asks the simulator";
  expect_in_fresh_process([] {
    const at::Tensor x = normal({1 << 18}, 1), there = at::empty({1 << 18}, at::device(npu()));
    const int64_t events = alive("events");
    if (!fails("call:aclrtMallocHost:1:207001", [&] { there.copy_(x); })) return false;
    if (alive("events") != events) return false;
    there.copy_(x);
    const int64_t pinned = counter("allocations.host");
    for (int i = 0; i < 40; ++i) {
      if (!fails("call:aclrtMemcpyAsync:1:507899", [&] { there.copy_(x); })) return false;
      if (!fails("call:aclrtMemcpyAsync:1:507899", [&] { there.to(at::kCPU); })) return false;
      if (!there.to(at::kCPU).equal(x)) return false;
    }
    // A few are under way at a time; one for each failure would be 80.
    return counter("allocations.host") - pinned <= 16;
  });
}

TEST(NpuDevice, WhatCannDoesNotMakeIsAnError) {
  if (is_on_card()) GTEST_SKIP() << "asks the simulator";
  const at::Tensor x = normal({3, 4}, 1).to(npu());
  const at::Tensor w = normal({5, 4}, 2).to(npu()), bias = normal({5}, 3).to(npu());
  const auto multiply = [&] { return device_table().product(x, w, bias, at::kFloat); };
  EXPECT_TRUE(fails("call:aclCreateScalar:1:207001", multiply));
  EXPECT_TRUE(fails("call:aclCreateIntArray:1:207001", [&] { device_table().column_sums(x); }));
  EXPECT_LE(distance(multiply(), x.to(at::kCPU).mm(w.to(at::kCPU).t()) + bias.to(at::kCPU)), 1e-6)
      << "the device goes on";
}

TEST(NpuDevice, OnlyARefusalSaysThatAProductHasNoWideSums) {
  if (is_on_card()) GTEST_SKIP() << "asks the simulator";
  expect_in_fresh_process([] {
    const at::Tensor x = normal({4, 4}, 1, at::kHalf).to(npu());
    const auto multiply = [&] { device_table().product(x, x, {}, at::kFloat).to(at::kCPU); };
    // What fails for another reason is heard of, and nothing is learned from it.
    if (!fails("call:aclnnMatmulGetWorkspaceSize:1:507899", multiply)) return false;
    const int64_t casts = counter("launches.aclnnInplaceCopy");
    multiply();
    return counter("launches.aclnnInplaceCopy") == casts;
  });
  expect_in_fresh_process([] {
    const at::Tensor x = normal({4, 4}, 1, at::kHalf).to(npu());
    const auto multiply = [&] { device_table().product(x, x, {}, at::kFloat).to(at::kCPU); };
    if (fails("call:aclnnMatmulGetWorkspaceSize:1:161002", multiply)) return false;
    const int64_t casts = counter("launches.aclnnInplaceCopy");
    multiply();
    return counter("launches.aclnnInplaceCopy") > casts;  // operands are made wide
  });
}

/// A card goes on after an operator has failed, and says so when it is waited for.
TEST(NpuDevice, WhatFailsOnTheCardIsHeardOfAtTheNextWait) {
  if (is_on_card()) GTEST_SKIP() << "asks the simulator";
  expect_in_fresh_process([] {
    const at::Tensor x = normal({4, 4}, 1).to(npu());
    return fails("task:aclnnMatmul:1:507035", [&] {
      device_table().product(x, x, {}, at::kFloat);
      device::Stream::current(npu()).synchronize();
    });
  });
}

TEST(NpuDevice, DescriptorsLiveForOneOperator) {
  if (is_on_card()) GTEST_SKIP() << "asks the simulator";
  const at::Tensor x = normal({6, 4}, 1).to(npu()), index = at::tensor({4, 0}, at::kLong).to(npu());
  const auto work = [&] {
    const at::Tensor product = device_table().product(x, x, {}, at::kFloat);
    device_table().add_rows(x.clone(), index, device_table().take_rows(x, index));
    device_table().column_sums(product).to(at::kCPU);
  };
  const auto all = [] {
    std::vector<int64_t> counts;
    for (const char* kind : {"tensors", "scalars", "arrays", "lists", "executors", "events"})
      counts.push_back(alive(kind));
    return counts;
  };
  work();  // what is kept for shapes is made
  const std::vector<int64_t> before = all();
  for (int i = 0; i < 5; ++i) work();
  EXPECT_EQ(all(), before);
}

TEST(NpuDevice, SumsAreTheSameBitsEveryTime) {
  const at::Tensor rows = normal({200, 8}, 1).to(npu());
  const at::Tensor index = at::zeros({200}, at::kLong).to(npu());
  const auto sum = [&] {
    const at::Tensor total = at::zeros({2, 8}, at::device(npu()).dtype(at::kFloat));
    device_table().add_rows(total, index, rows);
    return total.to(at::kCPU);
  };
  const at::Tensor first = sum();
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(sum().equal(first)) << i;
}

TEST(NpuDevice, SaysWhatTookTheMemory) {
  try {
    const at::Tensor x = at::empty({int64_t{1} << 38}, at::device(npu()).dtype(at::kFloat));
    FAIL() << "there was room";
  } catch (const MemoryError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("npu:0 has no 1.1 TB left"));
    EXPECT_THAT(error.what(), testing::HasSubstr("this process's tensors have"));
  }
  const at::Tensor small = at::ones({3}).to(npu());
  EXPECT_EQ(small.to(at::kCPU).sum().item<float>(), 3) << "the device goes on";
}

}  // namespace
}  // namespace danlu::npu::test
