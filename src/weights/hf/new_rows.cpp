#include "weights/hf/new_rows.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <numbers>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/rng.h"
#include "weights/source_base.h"

namespace danlu::weights {
namespace {

/// transformers' factor of the covariance.
constexpr double kSlightVariance = 1e-9;
constexpr int64_t kBytesAtATime = 4 << 20;

/// Standard normal; two 64-bit words of one stream make it (Box and Muller).
double normal_at(uint64_t stream, uint64_t index) {
  const auto uniform = [&](uint64_t at) {
    return (static_cast<double>(mix64(stream, at) >> 11) + 0.5) * 0x1p-53;
  };
  return std::sqrt(-2.0 * std::log(uniform(2 * index))) *
         std::cos(2.0 * std::numbers::pi * uniform(2 * index + 1));
}

/// Moments of each column.
struct ColumnMoments {
  std::vector<double> mean, deviation;
};

/// A tensor with a row for each token.
struct TokenRows {
  int64_t in_file = 0;  ///< rows
  bool is_bias = false;
  uint64_t stream = 0;  ///< of its draws
};

class WithNewRows final : public TensorSource {
 public:
  WithNewRows(std::shared_ptr<const TensorSource> all, const arch::ModelConfig& config,
              NewRows rows)
      : all_(std::move(all)),
        rows_(std::move(rows)),
        tokens_(rows_.tokens.begin(), rows_.tokens.end()),
        infos_(all_->tensors()) {
    for (const arch::ParamSpec& spec : arch::parameters_of(config)) {
      if (spec.role != arch::Role::kEmbedding && spec.role != arch::Role::kHead) continue;
      const auto info = std::find_if(infos_.begin(), infos_.end(),
                                     [&](const TensorInfo& one) { return one.name == spec.name; });
      // One of another shape is for whoever compares files with config.json to refuse.
      if (info == infos_.end() || info->shape != spec.shape) continue;
      // A copy has what it is a copy of.
      const std::string& name = spec.tied_to.empty() ? spec.name : spec.tied_to;
      changed_[spec.name] = {info->shape.front(), spec.is_bias,
                             mix64(rows_.seed, hash_bytes(name))};
      if (rows_.vocab_size > 0) info->shape.front() = rows_.vocab_size;
    }
  }

  const std::vector<TensorInfo>& tensors() const override { return infos_; }
  void read(const std::string& name, std::span<std::byte> out) const override {
    if (!changed_.count(name)) return all_->read(name, out);
    read_range(name, 0, find(name)->num_elements(), out);
  }
  void read_range(const std::string& name, int64_t begin, int64_t end,
                  std::span<std::byte> out) const override {
    if (!changed_.count(name)) return all_->read_range(name, begin, end, out);
    const TensorInfo& info = *find(name);
    check_range(info, begin, end, out.size());
    const auto item = static_cast<int64_t>(dtype_size_bytes(info.dtype));
    for_each_rect(columns_of(name), begin, end, [&](const Rect& rect, int64_t before) {
      read_rect(name, rect, out.data() + before * item, rect.cols);
    });
  }
  void read_rect(const std::string& name, const Rect& rect, std::byte* out,
                 int64_t out_stride) const override {
    const auto changed = changed_.find(name);
    if (changed == changed_.end()) return all_->read_rect(name, rect, out, out_stride);
    const TensorInfo& info = *find(name);
    check_rect(info, rect);
    const auto item = static_cast<int64_t>(dtype_size_bytes(info.dtype));
    // Rows of the file between rows that are drawn are read at once.
    for (int64_t row = rect.row, end = rect.row + rect.rows; row < end;) {
      std::byte* const to = out + (row - rect.row) * out_stride * item;
      if (is_drawn(name, changed->second, row)) {
        draw(name, changed->second, row++, rect, to);
        continue;
      }
      const int64_t first = row;
      while (row < end && !is_drawn(name, changed->second, row)) ++row;
      all_->read_rect(name, {first, row - first, rect.col, rect.cols}, to, out_stride);
    }
  }
  std::span<const std::byte> mapped(const std::string& name) const override {
    return changed_.count(name) ? std::span<const std::byte>() : all_->mapped(name);
  }
  std::filesystem::path file_of(const std::string& name) const override {
    return all_->file_of(name);
  }
  Storage storage(const std::string& name) const override {
    return changed_.count(name) ? TensorSource::storage(name) : all_->storage(name);
  }
  std::optional<Nf4Form> nf4_form(const std::string& name) const override {
    return changed_.count(name) ? std::nullopt : all_->nf4_form(name);
  }
  Nf4Codes read_nf4(const std::string& name) const override { return all_->read_nf4(name); }
  const Json& metadata() const override { return all_->metadata(); }
  std::vector<std::filesystem::path> files() const override { return all_->files(); }
  void forget() const override { all_->forget(); }

 private:
  int64_t columns_of(const std::string& name) const { return matrix_of(find(name)->shape).cols; }

  bool is_drawn(const std::string& name, const TokenRows& rows, int64_t row) const {
    if (row >= rows.in_file) return true;
    if (!tokens_.count(row)) return false;
    if (rows_.noise == RowNoise::kOfWidth) return true;
    const std::lock_guard guard(lock_);
    const auto known = is_zero_.find({name, row});
    if (known != is_zero_.end()) return known->second;
    const int64_t cols = columns_of(name);
    std::vector<std::byte> values(static_cast<size_t>(cols) * dtype_size_bytes(find(name)->dtype));
    all_->read_range(name, row * cols, (row + 1) * cols, values);
    const bool is_zero = std::all_of(values.begin(), values.end(),
                                     [](std::byte one) { return one == std::byte{0}; });
    return is_zero_[{name, row}] = is_zero;
  }

  void draw(const std::string& name, const TokenRows& rows, int64_t row, const Rect& rect,
            std::byte* out) const {
    const ColumnMoments& moments = moments_of(name, rows);
    const int64_t cols = columns_of(name);
    std::vector<double> values(static_cast<size_t>(rect.cols));
    for (int64_t i = 0; i < rect.cols; ++i) {
      const auto col = static_cast<size_t>(rect.col + i);
      values[static_cast<size_t>(i)] = moments.mean[col];
      if (rows.is_bias) continue;
      values[static_cast<size_t>(i)] +=
          moments.deviation[col] *
          normal_at(rows.stream, static_cast<uint64_t>(row * cols + rect.col + i));
    }
    cast_elements(values.data(), DType::kF64, out, find(name)->dtype, values.size());
  }

  /// Moments of the rows that stood for tokens before.
  const ColumnMoments& moments_of(const std::string& name, const TokenRows& rows) const {
    const std::lock_guard guard(lock_);
    const auto known = moments_.find(name);
    if (known != moments_.end()) return known->second;
    const int64_t cols = columns_of(name);
    const TensorInfo& info = *all_->find(name);
    const auto item = static_cast<int64_t>(dtype_size_bytes(info.dtype));
    const int64_t step = std::max<int64_t>(1, kBytesAtATime / (cols * item));
    const auto width = static_cast<size_t>(cols);
    std::vector<double> sum(width), squares(width), values;
    std::vector<std::byte> bytes;
    int64_t count = 0;
    for (int64_t row = 0; row < rows.in_file; row += step) {
      const int64_t end = std::min(row + step, rows.in_file);
      bytes.resize(static_cast<size_t>((end - row) * cols * item));
      values.resize(static_cast<size_t>((end - row) * cols));
      all_->read_range(name, row * cols, end * cols, bytes);
      cast_elements(bytes.data(), info.dtype, values.data(), DType::kF64, values.size());
      for (int64_t i = row; i < end; ++i) {
        if (tokens_.count(i)) continue;
        ++count;
        const double* const of_row = values.data() + static_cast<size_t>((i - row) * cols);
        for (size_t col = 0; col < width; ++col) {
          sum[col] += of_row[col];
          squares[col] += of_row[col] * of_row[col];
        }
      }
    }
    ColumnMoments& moments = moments_[name];
    const double rows_counted = static_cast<double>(std::max<int64_t>(1, count));
    for (size_t col = 0; col < width; ++col) {
      const double mean = sum[col] / rows_counted,
                   variance = std::max(0.0, squares[col] / rows_counted - mean * mean);
      moments.mean.push_back(mean);
      moments.deviation.push_back(rows_.noise == RowNoise::kOfWidth
                                      ? 1.0 / std::sqrt(static_cast<double>(cols))
                                      : std::sqrt(kSlightVariance * variance));
    }
    return moments;
  }

  std::shared_ptr<const TensorSource> all_;
  NewRows rows_;
  std::set<int64_t> tokens_;
  std::vector<TensorInfo> infos_;
  std::map<std::string, TokenRows> changed_;
  mutable std::mutex lock_;
  mutable std::map<std::string, ColumnMoments> moments_;
  mutable std::map<std::pair<std::string, int64_t>, bool> is_zero_;
};

}  // namespace

std::shared_ptr<const TensorSource> with_new_rows(std::shared_ptr<const TensorSource> source,
                                                  const arch::ModelConfig& config,
                                                  const NewRows& rows) {
  if (rows.empty()) return source;
  if (rows.vocab_size > 0 && rows.vocab_size < config.vocab_size) {
    throw ModelError(tr("[weights] a vocabulary of {} does not shrink to {}", config.vocab_size,
                        rows.vocab_size));
  }
  arch::ModelConfig all = config;
  all.predicts_ahead = true;  // copies of those layers, where files have them
  return std::make_shared<WithNewRows>(std::move(source), all, rows);
}

}  // namespace danlu::weights
