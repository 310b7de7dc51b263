// tests/infer/tested_device.h: what the models of these tests are on.
#pragma once
#include <c10/core/Device.h>

#include <cstdlib>
#include <string>

#include "support/pretend_device.h"

namespace danlu::infer {

/// The CPU; with DANLU_TEST_DEVICE=pretend a device whose memory the host cannot reach, with the
/// table of devices that ATen computes on (tested_device.cpp).
inline bool is_on_pretend_device() {
  static const bool is_on = [] {
    const char* const name = std::getenv("DANLU_TEST_DEVICE");
    return name && std::string(name) == "pretend";
  }();
  return is_on;
}
inline at::Device tested_device() {
  return is_on_pretend_device() ? danlu::test::pretend_device() : at::Device(at::kCPU);
}

}  // namespace danlu::infer
