#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>

#include "device/cuda.h"

namespace danlu::device {
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

/// The allocator knows a GPU from its first tensor on.
int index_of(const c10::Device& device) {
  at::empty({1}, at::TensorOptions(device));
  return device.index();
}

/// The entry of the allocator's figures that is about blocks of all sizes together.
constexpr size_t kAll = 0;

uint64_t available(const c10::Device& device) {
  index_of(device);
  const c10::cuda::CUDAGuard here(device);
  allocator::emptyCache();  // what it keeps is in pieces, of which no large tensor can be made
  size_t free = 0, total = 0;
  C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  return free;
}

}  // namespace

MemoryCounter cuda_memory_counter() {
  return {[](const c10::Device& device) -> int64_t {
            return allocator::getDeviceStats(index_of(device)).allocated_bytes[kAll].current;
          },
          [](const c10::Device& device) -> int64_t {
            return allocator::getDeviceStats(index_of(device)).allocated_bytes[kAll].peak;
          },
          [](const c10::Device& device) { allocator::resetPeakStats(index_of(device)); },
          &available,
          [](const c10::Device& device) -> AllocatorFigures {
            const auto figures = allocator::getDeviceStats(index_of(device));
            return {figures.reserved_bytes[kAll].peak, figures.num_alloc_retries};
          }};
}

}  // namespace danlu::device
