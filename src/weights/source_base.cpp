#include "weights/source_base.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/nearest_name.h"

namespace danlu::weights {

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

void no_such_tensor(const std::string& name, const std::filesystem::path& file,
                    const std::vector<TensorInfo>& tensors) {
  std::vector<std::string> names;
  for (const TensorInfo& info : tensors) names.push_back(info.name);
  const auto nearest = nearest_name(name, names);
  std::string hint;
  if (nearest) hint = tr("did you mean {}?", *nearest);
  throw ModelError(tr("{}: no tensor {} among its {}", file.string(), name, tensors.size()), hint);
}

void check_range(const TensorInfo& info, int64_t begin, int64_t end, size_t out_bytes) {
  if (begin < 0 || begin > end || end > info.num_elements()) {
    throw InternalError(fmt::format("[weights] elements {}..{} are outside {} {}", begin, end,
                                    info.name, shape_text(info.shape)));
  }
  const size_t needed = static_cast<size_t>(end - begin) * dtype_size_bytes(info.dtype);
  if (out_bytes != needed) {
    throw InternalError(fmt::format("[weights] {} elements of {} take {} bytes, the buffer has {}",
                                    end - begin, info.name, needed, out_bytes));
  }
}

void check_rect(const TensorInfo& info, const Rect& rect) {
  const Rect matrix = matrix_of(info.shape);
  const bool inside = rect.row >= 0 && rect.col >= 0 && rect.rows >= 0 && rect.cols >= 0 &&
                      rect.row + rect.rows <= matrix.rows && rect.col + rect.cols <= matrix.cols;
  if (inside) return;
  throw InternalError(fmt::format("[weights] {}: rows {}+{}, columns {}+{} are outside {} x {}",
                                  info.name, rect.row, rect.rows, rect.col, rect.cols, matrix.rows,
                                  matrix.cols));
}

}  // namespace danlu::weights
