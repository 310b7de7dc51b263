// train/segment_sums.h: sums of rows that belong to segments, in one order on every device.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>

#include <cstdint>
#include <vector>

namespace danlu::train {

/// values [M, ...], of any type, and segment_M [M], int64, each below `count`, on one device:
/// [count, ...], for each segment the sum of its values, first to last, with the gradient of
/// values. An index_add would add in any order on a GPU, and bits would change from run to run.
inline at::Tensor sums_of_segments(const at::Tensor& values, const at::Tensor& segment_M,
                                   int64_t count) {
  std::vector<int64_t> sizes = values.sizes().vec();
  sizes.front() = count;
  // Accumulating, which sorts.
  return at::zeros(sizes, values.options()).index_put({segment_M}, values, /*accumulate=*/true);
}

}  // namespace danlu::train
