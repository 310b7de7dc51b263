// npu/copies.h: copies of tensors to, from and on a device, and numbers that fill one.
#pragma once
#include <ATen/core/Tensor.h>

namespace danlu::npu {

/// `to` becomes `from`, of any strides and types, one of them or both on NPUs; `from` is broadcast.
/// A copy to the host waits for the device. Errors: DeviceError for a copy between two NPUs.
void copy(const at::Tensor& from, const at::Tensor& to);
/// These read and write a device's memory in the order of its current stream.
void copy_bytes(int device, void* to, const void* from, size_t bytes);
void fill(const at::Tensor& tensor, const at::Scalar& value);
at::Scalar only_number(const at::Tensor& tensor);

}  // namespace danlu::npu
