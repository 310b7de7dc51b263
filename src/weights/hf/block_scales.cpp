#include "weights/hf/block_scales.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "weights/source_base.h"

namespace danlu::weights {
namespace {

constexpr std::string_view kFactors = "_scale_inv";

int64_t blocks_of(int64_t size) { return (size + kScaledBlock - 1) / kScaledBlock; }

/// Qwen3's releases have BF16.
bool is_factor_type(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

void check_factors(const TensorSource& source, const TensorInfo& factors, const TensorInfo& of) {
  const Rect matrix = matrix_of(of.shape);
  const std::vector<int64_t> expected = {blocks_of(matrix.rows), blocks_of(matrix.cols)};
  if (of.shape.size() == 2 && factors.shape == expected && is_factor_type(factors.dtype) &&
      source.storage(of.name).type == "F8_E4M3")
    return;
  throw ModelError(
      tr("{}: {} {} {} does not fit {} {} {}: blocks of {} x {} of an F8_E4M3 matrix "
         "have a factor of F32, BF16 or F16 each",
         source.file_of(factors.name).string(), factors.name, dtype_name(factors.dtype),
         shape_text(factors.shape), of.name, source.storage(of.name).type, shape_text(of.shape),
         kScaledBlock, kScaledBlock),
      tr("take the unquantised release of the model"));
}

/// Location: the name of a tensor's factors; empty: it has none.
class BlockScaledSource final : public SourceBase<std::string> {
 public:
  BlockScaledSource(std::shared_ptr<const TensorSource> from,
                    std::vector<std::pair<TensorInfo, std::string>> tensors)
      : from_(std::move(from)) {
    set_tensors(std::move(tensors));
    metadata_ = from_->metadata();
  }
  void read(const std::string& name, std::span<std::byte> out) const override {
    read_range(name, 0, info_of(name).num_elements(), out);
  }
  void read_range(const std::string& name, int64_t begin, int64_t end,
                  std::span<std::byte> out) const override {
    from_->read_range(name, begin, end, out);
    if (factors_of(name).empty()) return;
    const int64_t cols = matrix_of(info_of(name).shape).cols;
    for_each_rect(cols, begin, end, [&](const Rect& rect, int64_t before) {
      multiply(name, rect, out.data() + before * kItem, rect.cols);
    });
  }
  void read_rect(const std::string& name, const Rect& rect, std::byte* out,
                 int64_t out_stride) const override {
    from_->read_rect(name, rect, out, out_stride);
    if (!factors_of(name).empty()) multiply(name, rect, out, out_stride);
  }
  std::span<const std::byte> mapped(const std::string& name) const override {
    return factors_of(name).empty() ? from_->mapped(name) : std::span<const std::byte>();
  }
  Storage storage(const std::string& name) const override {
    Storage storage = from_->storage(name);
    if (!factors_of(name).empty())
      storage.size_bytes += from_->find(factors_of(name))->size_bytes();
    return storage;
  }
  std::filesystem::path file_of(const std::string& name) const override {
    return from_->file_of(name);
  }
  std::vector<std::filesystem::path> files() const override { return from_->files(); }
  void forget() const override { from_->forget(); }

 private:
  static constexpr int64_t kItem = sizeof(float);

  size_t place(const std::string& name) const {
    const TensorInfo* info = find(name);
    if (!info) no_such_tensor(name, from_->files().front(), infos_);
    return static_cast<size_t>(info - infos_.data());
  }
  const TensorInfo& info_of(const std::string& name) const { return infos_[place(name)]; }
  const std::string& factors_of(const std::string& name) const { return locations_[place(name)]; }

  void multiply(const std::string& name, const Rect& rect, std::byte* out, int64_t stride) const {
    if (rect.rows == 0 || rect.cols == 0) return;
    const int64_t row = rect.row / kScaledBlock, col = rect.col / kScaledBlock;
    const Rect blocks{row, blocks_of(rect.row + rect.rows) - row, col,
                      blocks_of(rect.col + rect.cols) - col};
    std::vector<float> factors(static_cast<size_t>(blocks.rows * blocks.cols));
    const DType dtype = from_->find(factors_of(name))->dtype;
    std::vector<std::byte> stored(factors.size() * dtype_size_bytes(dtype));
    from_->read_rect(factors_of(name), blocks, stored.data(), blocks.cols);
    cast_elements(stored.data(), dtype, factors.data(), DType::kF32, factors.size());
    for (int64_t r = 0; r < rect.rows; ++r) {
      const float* const of_row =
          &factors[static_cast<size_t>(((rect.row + r) / kScaledBlock - row) * blocks.cols)];
      std::byte* const begin = out + r * stride * kItem;
      for (int64_t c = 0; c < rect.cols; ++c) {
        float value;  // `out` may lie anywhere
        std::memcpy(&value, begin + c * kItem, kItem);
        value *= of_row[(rect.col + c) / kScaledBlock - col];
        std::memcpy(begin + c * kItem, &value, kItem);
      }
    }
  }

  std::shared_ptr<const TensorSource> from_;
};

}  // namespace

std::shared_ptr<const TensorSource> with_block_scales(std::shared_ptr<const TensorSource> source) {
  std::set<std::string> factors;
  std::vector<std::pair<TensorInfo, std::string>> tensors;
  for (const TensorInfo& info : source->tensors()) {
    if (!info.name.ends_with(kFactors)) continue;
    const std::string of = info.name.substr(0, info.name.size() - kFactors.size());
    const TensorInfo* const matrix = source->find(of);
    if (!matrix) {
      throw ModelError(tr("{}: holds {}, and there is no {}", source->file_of(info.name).string(),
                          info.name, of));
    }
    check_factors(*source, info, *matrix);
    factors.insert(info.name);
  }
  if (factors.empty()) return source;
  for (const TensorInfo& info : source->tensors()) {
    if (factors.count(info.name)) continue;
    const std::string name = info.name + std::string(kFactors);
    tensors.emplace_back(info, factors.count(name) ? name : "");
  }
  return std::make_shared<BlockScaledSource>(std::move(source), std::move(tensors));
}

}  // namespace danlu::weights
