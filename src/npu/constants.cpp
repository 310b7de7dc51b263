#include "npu/constants.h"

#include <ATen/core/Tensor.h>

#include "npu/streams.h"

namespace danlu::npu {

const at::Tensor& Constant::on(const at::Device& device) {
  const std::lock_guard lock(mutex_);
  at::Tensor& own = made_.at(static_cast<size_t>(device.index()));
  if (!own.defined()) {
    own = make_().to(device);
    // Other streams use it, too. The device as a whole is not waited for: what another rank is to
    // send may be under way on it.
    synchronize(stream_of(device.index(), current_stream(device.index())));
  }
  return own;
}

}  // namespace danlu::npu
