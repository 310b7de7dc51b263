#include "weights/tensor_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace danlu::weights {

int64_t TensorInfo::num_elements() const {
  int64_t elements = 1;
  for (const int64_t size : shape) elements *= size;
  return elements;
}

Rect matrix_of(const std::vector<int64_t>& shape) {
  Rect matrix{.rows = shape.empty() ? 1 : shape.front(), .cols = 1};
  for (size_t d = 1; d < shape.size(); ++d) matrix.cols *= shape[d];
  return matrix;
}

const TensorInfo* TensorSource::find(const std::string& name) const {
  const auto& all = tensors();
  const auto at = std::lower_bound(
      all.begin(), all.end(), name,
      [](const TensorInfo& info, const std::string& key) { return info.name < key; });
  return at != all.end() && at->name == name ? &*at : nullptr;
}

void TensorSource::read_rect(const std::string& name, const Rect& rect, std::byte* out,
                             int64_t out_stride) const {
  const TensorInfo* info = find(name);
  const Rect matrix = info ? matrix_of(info->shape) : Rect{};
  if (!info || rect.row < 0 || rect.col < 0 || rect.rows < 0 || rect.cols < 0 ||
      rect.row + rect.rows > matrix.rows || rect.col + rect.cols > matrix.cols) {
    throw InternalError(fmt::format("[weights] {}: rows {}+{}, columns {}+{} are outside it", name,
                                    rect.row, rect.rows, rect.col, rect.cols));
  }
  if (rect.rows == 0 || rect.cols == 0) return;
  const size_t item = dtype_size_bytes(info->dtype);
  if (rect.cols == matrix.cols && out_stride == matrix.cols) {
    const int64_t begin = rect.row * matrix.cols, end = begin + rect.rows * matrix.cols;
    return read_range(name, begin, end, {out, static_cast<size_t>(end - begin) * item});
  }
  const std::span<const std::byte> bytes = mapped(name);
  const size_t row_bytes = static_cast<size_t>(rect.cols) * item;
  for (int64_t r = 0; r < rect.rows; ++r) {
    const int64_t begin = (rect.row + r) * matrix.cols + rect.col;
    std::byte* to = out + static_cast<size_t>(r * out_stride) * item;
    if (!bytes.empty()) {
      std::memcpy(to, bytes.data() + static_cast<size_t>(begin) * item, row_bytes);
    } else {
      read_range(name, begin, begin + rect.cols, {to, row_bytes});
    }
  }
}

}  // namespace danlu::weights
