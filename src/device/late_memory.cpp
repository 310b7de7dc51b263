#include "device/late_memory.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>

namespace danlu::device {

at::Tensor tensor_without_memory(at::IntArrayRef shape, const at::TensorOptions& options) {
  at::Tensor tensor = at::empty({0}, options);
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(shape);
  // The size of memory to come: views are held against it.
  tensor.storage().unsafeGetStorageImpl()->set_nbytes(tensor.nbytes());
  return tensor;
}

void give_memory(const at::Tensor& tensor) {
  auto* storage = tensor.storage().unsafeGetStorageImpl();
  if (storage->data_ptr() || storage->nbytes() == 0) return;
  const c10::DeviceGuard guard(tensor.device());
  storage->set_data_ptr_noswap(
      c10::GetAllocator(tensor.device().type())->allocate(storage->nbytes()));
}

}  // namespace danlu::device
