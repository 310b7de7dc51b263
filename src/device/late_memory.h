// device/late_memory.h: tensors whose memory comes later than their shape.
#pragma once
#include <ATen/core/Tensor.h>

namespace danlu::device {

/// Contiguous; views of it may be made. Values may not be asked for before the storage has memory.
at::Tensor tensor_without_memory(at::IntArrayRef shape, const at::TensorOptions& options);

/// Uninitialised memory for the storage of such a tensor, and so for all that share it, where it
/// has none.
void give_memory(const at::Tensor& tensor);

}  // namespace danlu::device
