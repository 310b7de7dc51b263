// npu/constants.h: tensors that never change, sent to each device once.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <array>
#include <mutex>

#include "npu/context.h"

namespace danlu::npu {

/// One of them. Kept to the program's end; make one with `new`: a device may go before statics do.
class Constant {
 public:
  using Make = at::Tensor (*)();  ///< on the host
  explicit Constant(Make make) : make_(make) {}
  /// For work of any stream. Thread-safe.
  const at::Tensor& on(const at::Device& device);

 private:
  const Make make_;
  std::mutex mutex_;
  std::array<at::Tensor, kMostDevices> made_;
};

}  // namespace danlu::npu
