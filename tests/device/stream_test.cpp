#include "device/stream.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

namespace danlu::device {
namespace {

TEST(Stream, OfTheHostHasDoneAllThatItWasGiven) {
  const Stream stream = Stream::current(at::kCPU), other = Stream::beside(at::kCPU);
  const Stream::InForce in_force(other);
  const Event event = stream.record();
  EXPECT_TRUE(event.is_over());
  EXPECT_TRUE(Event().is_over());
  other.wait_for(event);
  other.hold(at::ones({2}));
  other.hold(at::Tensor());
  event.wait();
  stream.synchronize();
}

}  // namespace
}  // namespace danlu::device
