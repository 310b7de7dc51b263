// tests/ops/made_nf4.h: matrices in NF4, whole or cut.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <memory>
#include <utility>
#include <vector>

#include "ops/nf4.h"

namespace danlu::test {

/// What rectangles (none: all) hold of a matrix that is quantised.
inline ops::Nf4Matrix made_nf4(const at::Tensor& weight_OI, const ops::Nf4Form& form,
                               std::vector<ops::Nf4Rect> rects = {}) {
  if (rects.empty()) rects = {{0, weight_OI.size(0), 0, weight_OI.size(1)}};
  auto layout = std::make_shared<ops::Nf4Layout>(form, weight_OI.size(0), weight_OI.size(1),
                                                 std::move(rects));
  at::Tensor bytes = at::empty({layout->size_bytes()}, at::TensorOptions(at::kByte));
  ops::cut_nf4(ops::quantized_nf4(weight_OI, form), *layout, bytes.data_ptr<uint8_t>());
  return {layout, bytes};
}

}  // namespace danlu::test
