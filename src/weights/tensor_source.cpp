#include "weights/tensor_source.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <set>

#include "base/error.h"
#include "weights/source_base.h"

namespace danlu::weights {

namespace {

/// The product of sizes ≥ 0; INT64_MAX where it is larger: formats refuse such shapes, but a size
/// of 0 beside them makes a tensor of nothing.
int64_t product(std::span<const int64_t> sizes) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  int64_t elements = 1;
  for (const int64_t size : sizes) {
    if (__builtin_mul_overflow(elements, size, &elements)) elements = kMost;
  }
  return elements;
}

}  // namespace

int64_t TensorInfo::num_elements() const { return product(shape); }

const TensorInfo* TensorSource::find(const std::string& name) const {
  const auto& all = tensors();
  const auto at = std::lower_bound(
      all.begin(), all.end(), name,
      [](const TensorInfo& info, const std::string& key) { return info.name < key; });
  return at != all.end() && at->name == name ? &*at : nullptr;
}

Nf4Codes TensorSource::read_nf4(const std::string& name) const {
  throw InternalError("[weights] " + name + " is not in NF4");
}

Storage TensorSource::storage(const std::string& name) const {
  const TensorInfo* info = find(name);
  if (!info) no_such_tensor(name, "", tensors());
  return {std::string(dtype_name(info->dtype)), info->size_bytes()};
}

std::vector<std::filesystem::path> TensorSource::files() const {
  std::set<std::filesystem::path> files;
  for (const TensorInfo& info : tensors()) files.insert(file_of(info.name));
  return {files.begin(), files.end()};
}

void TensorSource::read_rect(const std::string& name, const Rect& rect, std::byte* out,
                             int64_t out_stride) const {
  const TensorInfo* info = find(name);
  if (!info) no_such_tensor(name, "", tensors());
  check_rect(*info, rect);
  const Rect matrix = matrix_of(info->shape);
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
