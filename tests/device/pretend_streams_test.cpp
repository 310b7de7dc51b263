// device/stream.h through c10's guard, on a device that does everything as late as it may; and that
// such a device shows whoever does not wait.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "device/host_memory.h"
#include "device/stream.h"
#include "support/pretend_device.h"

namespace danlu::device {
namespace {

using danlu::test::pretend_device;

constexpr int kTries = 200;  ///< of which chance orders some so that a missing wait is seen

at::Tensor filled_with(double value) {
  at::Tensor tensor = at::empty({8}, at::device(pretend_device()));
  return tensor.fill_(value);
}
double first_of(const at::Tensor& tensor) { return tensor[0].item<double>(); }

/// What another stream copies of a tensor that this one fills.
double copied_beside(bool waits) {
  const Stream here = Stream::current(pretend_device()), beside = Stream::beside(pretend_device());
  const at::Tensor made = filled_with(1);
  const Event filled = here.record();
  at::Tensor copy;
  Event copied;
  {
    const Stream::InForce in_force(beside);
    if (waits) beside.wait_for(filled);
    beside.hold(made);
    copy = at::empty({8}, made.options());
    copy.copy_(made);
    copied = beside.record();
  }
  here.wait_for(copied);
  here.hold(copy);
  return first_of(copy);
}

TEST(PretendStreams, AStreamThatWaitsForAnEventReadsWhatWasMadeBefore) {
  for (int i = 0; i < kTries; ++i) ASSERT_EQ(copied_beside(true), 1) << i;
}

TEST(PretendStreams, AStreamThatDoesNotWaitIsSeen) {
  int wrong = 0;
  for (int i = 0; i < kTries; ++i) wrong += copied_beside(false) != 1;
  EXPECT_GT(wrong, 0);
}

/// What a stream reads of memory that another has handed back while the work was not done.
std::optional<double> read_after_handing_back(bool holds) {
  const Stream here = Stream::current(pretend_device()), beside = Stream::beside(pretend_device());
  at::Tensor made = filled_with(2);
  const Event filled = here.record();
  at::Tensor copy;
  {
    const Stream::InForce in_force(beside);
    beside.wait_for(filled);
    if (holds) beside.hold(made);
    copy = at::empty({8}, made.options());
    copy.copy_(made);
    made.reset();
  }
  here.synchronize();  // the handing back too
  try {
    const Stream::InForce in_force(beside);
    return first_of(copy);
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("handed back before"));
    return std::nullopt;
  }
}

TEST(PretendStreams, MemoryThatAStreamHoldsIsHandedBackWhenItIsDone) {
  for (int i = 0; i < kTries; ++i) ASSERT_EQ(read_after_handing_back(true), 2) << i;
}

TEST(PretendStreams, MemoryThatIsHandedBackTooEarlyIsSeen) {
  int seen = 0;
  for (int i = 0; i < kTries; ++i) seen += !read_after_handing_back(false);
  EXPECT_GT(seen, 0);
}

TEST(PretendStreams, TheHostWaitsForAnEvent) {
  const Stream here = Stream::current(pretend_device());
  int late = 0;
  for (int i = 0; i < kTries; ++i) {
    const at::Tensor made = filled_with(3);
    const at::Tensor on_host = host_memory({8}, at::kFloat, pretend_device()).fill_(0);
    on_host.copy_(made, /*non_blocking=*/true);
    const Event copied = here.record();
    late += first_of(on_host) != 3;
    copied.wait();
    ASSERT_TRUE(copied.is_over());
    ASSERT_EQ(first_of(on_host), 3) << i;
  }
  EXPECT_GT(late, 0) << "a result that is read without waiting is seen";
}

TEST(PretendStreams, AStreamIsCurrentWhileItIsInForceAndOnThisDeviceAlone) {
  const Stream beside = Stream::beside(pretend_device());
  at::Tensor made;
  {
    const Stream::InForce in_force(beside);
    made = filled_with(4);
  }
  beside.synchronize();
  EXPECT_EQ(first_of(made), 4);
  at::Tensor other = at::empty({1}, at::device(pretend_device(1)));
  EXPECT_EQ(first_of(other.fill_(5)), 5);
}

}  // namespace
}  // namespace danlu::device
