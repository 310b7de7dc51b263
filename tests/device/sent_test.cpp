// device/sent.h: the host goes on, and the numbers come all the same, in whatever order streams
// meet.
#include "device/sent.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "device/host_memory.h"
#include "device/stream.h"
#include "support/pretend_device.h"

namespace danlu::device {
namespace {

using danlu::test::pretend_copies_beside;
using danlu::test::pretend_device;
using danlu::test::pretend_waits;

constexpr int64_t kLarge = kBytesBesidePasses / 8;  ///< int64 that go beside the passes

TEST(Sent, ATensorOfTheHostComesWithoutAWait) {
  for (const int64_t count : {int64_t{1}, int64_t{1000}, kLarge - 1, kLarge, 2 * kLarge}) {
    const int64_t waits = pretend_waits(), beside = pretend_copies_beside();
    at::Tensor numbers = at::arange(count, at::kLong);
    const at::Tensor there = sent(numbers, pretend_device());
    numbers.fill_(-1);  // it was read
    EXPECT_EQ(pretend_waits(), waits) << count;
    EXPECT_EQ(pretend_copies_beside() - beside, count >= kLarge) << count;
    EXPECT_TRUE(at::equal(there.cpu(), at::arange(count, at::kLong))) << count;
  }
}

/// Passes that read many batches, whose memory goes back at once: to the stream of the copies,
/// which may not use it again before the passes have read it.
TEST(Sent, BatchesComeInTheirOrderAndAreReadBeforeTheirMemoryIsUsedAgain) {
  const at::Tensor sum = at::full({kLarge}, 0, at::device(pretend_device()).dtype(at::kLong));
  for (int64_t batch = 1; batch <= 50; ++batch) {
    const at::Tensor there = sent(at::full({kLarge}, batch, at::kLong), pretend_device());
    danlu::test::give_pretend_device(
        pretend_device(), "a pass", {sum, there},
        [to = danlu::test::pretend_memory(sum), from = danlu::test::pretend_memory(there)] {
          to.mul_(3).add_(from).remainder_(1'000'003);
        });
  }
  int64_t expected = 0;
  for (int64_t batch = 1; batch <= 50; ++batch) expected = (expected * 3 + batch) % 1'000'003;
  EXPECT_TRUE(sum.cpu().eq(expected).all().item<bool>());
}

TEST(Sent, StridesTypesAndNothingAtAll) {
  const at::Tensor columns = at::arange(12, at::kFloat).view({3, 4}).t();
  EXPECT_TRUE(at::equal(sent(columns, pretend_device()).cpu(), columns));
  const at::Tensor bits = at::arange(5, at::kLong).gt(2);
  EXPECT_TRUE(at::equal(sent(bits, pretend_device()).cpu(), bits));
  EXPECT_EQ(sent(at::empty({0, 3}), pretend_device()).sizes(), (at::IntArrayRef{0, 3}));
  EXPECT_TRUE(sent(columns, at::kCPU).is_same(columns));
  const at::Tensor there = sent(bits, pretend_device());
  EXPECT_TRUE(sent(there, pretend_device()).is_same(there));
}

/// And back again, when the event is over.
TEST(Sent, ATensorComesToMemoryOfTheHostWithoutAWait) {
  for (const int64_t count : {int64_t{1}, kLarge}) {
    const at::Tensor there = sent(at::arange(count, at::kLong), pretend_device());
    const int64_t waits = pretend_waits();
    const at::Tensor host = host_memory({count}, at::kLong, pretend_device());
    host.copy_(there, /*non_blocking=*/true);
    EXPECT_EQ(pretend_waits(), waits) << count;
    Stream::current(pretend_device()).record().wait();
    EXPECT_TRUE(at::equal(host, at::arange(count, at::kLong))) << count;
    EXPECT_EQ(pretend_waits(), waits) << count;
  }
  const at::Tensor ordinary = at::empty({3}, at::kLong);
  EXPECT_EQ(host_memory({3}, at::kLong, at::kCPU).sizes(), ordinary.sizes());
  const int64_t before = pretend_waits();
  ordinary.copy_(sent(at::arange(3, at::kLong), pretend_device()), /*non_blocking=*/true);
  EXPECT_EQ(pretend_waits() - before, 1) << "into other memory a card copies at once";
}

TEST(Sent, WhatGoesOtherwiseIsCountedAsAWait) {
  const int64_t before = pretend_waits();
  at::arange(3).to(pretend_device());
  at::arange(3).to(pretend_device(), /*non_blocking=*/true);
  EXPECT_EQ(pretend_waits() - before, 2);
}

}  // namespace
}  // namespace danlu::device
