#include "ops/aten/table.h"

#include <ATen/Context.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/version.h>

#include "ops/cuda/entries.h"

namespace danlu::ops::cuda {
namespace {

Backend filled_cuda() {
  Backend table = aten::backend();
  add_products(table);
  add_flash_attention(table);
  add_kernels(table);
  // Sums are f32 however cuBLAS cuts them.
  at::globalContext().setAllowFP16ReductionCuBLAS(false);
#if TORCH_VERSION_MAJOR >= 2
  at::globalContext().setAllowBF16ReductionCuBLAS(false);
#endif
  return table;
}

}  // namespace

Stream current_stream(const c10::Device& device) {
  return c10::cuda::getCurrentCUDAStream(device.index()).stream();
}

const Backend& backend() {
  static const Backend table = filled_cuda();
  return table;
}

}  // namespace danlu::ops::cuda
