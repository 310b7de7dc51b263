#include "weights/hf/packed_weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <vector>

#include "base/error.h"
#include "weights/hf/packed_parts.h"
#include "weights/source_base.h"

namespace danlu::weights {
namespace {

using Words = std::vector<uint32_t>;

/// The code that begins at `bit` of a stream of codes, whose words lie `stride` apart.
uint32_t code_at_bit(const uint32_t* words, int64_t stride, int64_t bit, int64_t bits) {
  const int64_t word = bit / 32, shift = bit % 32;
  uint32_t code = words[word * stride] >> shift;
  if (shift + bits > 32) code |= words[(word + 1) * stride] << (32 - shift);
  return code & ((1u << bits) - 1);
}

/// Where AWQ puts the code of a row, in units of 4 bits: rows lie in the order 0 2 4 6 1 3 5 7.
int64_t awq_place(int64_t row) { return row % 2 * 4 + row % 8 / 2; }

/// Rows that are decoded at a time: their words fit a core's cache. A multiple of 32.
constexpr int64_t kRowsAtOnce = 64;

void put_numbers(DType dtype, std::span<const float> numbers, std::byte* out) {
  cast_elements(numbers.data(), DType::kF32, out, dtype, numbers.size());
}

/// A part of a matrix: rows [row, row + rows), columns [col, col + cols).
class Decoder {
 public:
  Decoder(const TensorSource& from, const PackedMatrix& matrix, const Rect& rect)
      : from_(from), matrix_(matrix), rect_(rect) {
    if (is_in(Packing::kScaled)) {
      read_numbers();
    } else {
      read_codes();
    }
    read_groups();
    read_scales();
    read_zeros();
  }

  void row(int64_t r, std::span<float> out) const {
    const float* const scales = &scales_[static_cast<size_t>(r * matrix_.groups)];
    const float* const zeros = &zeros_[static_cast<size_t>(r * matrix_.groups)];
    put_codes(r, out.data());
    for (size_t c = 0; c < out.size(); ++c)
      out[c] = (out[c] - zeros[groups_[c]]) * scales[groups_[c]];
  }

 private:
  bool is_in(Packing packing) const { return matrix_.packing == packing; }
  /// The rows and columns of `name` that hold codes of the rectangle.
  template <typename T>
  std::vector<T> read(const std::string& name, const Rect& rect) const {
    std::vector<T> values(static_cast<size_t>(rect.rows * rect.cols));
    from_.read_rect(name, rect, reinterpret_cast<std::byte*>(values.data()), rect.cols);
    return values;
  }
  /// Words [first, last) that hold codes [begin, begin + count).
  static std::pair<int64_t, int64_t> words_of(int64_t begin, int64_t count, int64_t bits) {
    return {begin * bits / 32, ((begin + count) * bits + 31) / 32};
  }
  void read_codes() {
    const int64_t bits = matrix_.bits;
    if (is_in(Packing::kGptq)) {
      const auto [first, last] = words_of(rect_.col, rect_.cols, bits);
      words_ = read<uint32_t>(matrix_.codes, {first, last - first, rect_.row, rect_.rows});
      skip_ = rect_.col * bits - first * 32;
      width_ = rect_.rows;
    } else if (is_in(Packing::kAwq)) {
      const auto [first, last] = words_of(rect_.row, rect_.rows, bits);
      words_ = read<uint32_t>(matrix_.codes, {rect_.col, rect_.cols, first, last - first});
      skip_ = rect_.row - first * 8;
      width_ = last - first;
    } else {
      const auto [first, last] = words_of(rect_.col, rect_.cols, bits);
      words_ = read<uint32_t>(matrix_.codes, {rect_.row, rect_.rows, first, last - first});
      skip_ = rect_.col * bits - first * 32;
      width_ = last - first;
    }
  }
  void read_numbers() {
    const DType dtype = from_.find(matrix_.codes)->dtype;
    if (dtype == DType::kI8) {
      const auto codes = read<int8_t>(matrix_.codes, rect_);
      numbers_.assign(codes.begin(), codes.end());
    } else {
      numbers_ = read<float>(matrix_.codes, rect_);
    }
  }
  /// The codes of row `r` of the rectangle.
  void put_codes(int64_t r, float* out) const {
    switch (matrix_.packing) {
      case Packing::kGptq:
        return put_stream(&words_[static_cast<size_t>(r)], width_, out);
      case Packing::kPacked:
        return put_stream(&words_[static_cast<size_t>(r * width_)], 1, out);
      case Packing::kAwq: {
        const int64_t row = skip_ + r, shift = 4 * awq_place(row);
        const uint32_t* const words = &words_[static_cast<size_t>(row / 8)];
        for (int64_t c = 0; c < rect_.cols; ++c)
          out[c] = static_cast<float>(words[c * width_] >> shift & 15u);
        return;
      }
      case Packing::kScaled:
        std::copy_n(&numbers_[static_cast<size_t>(r * rect_.cols)], rect_.cols, out);
    }
  }
  /// The codes of a stream, of which the first begins `skip_` bits into the first word.
  void put_stream(const uint32_t* words, int64_t stride, float* out) const {
    const int64_t bits = matrix_.bits;
    for (int64_t c = 0; c < rect_.cols; ++c)
      out[c] = static_cast<float>(code_at_bit(words, stride, skip_ + c * bits, bits));
  }

  void read_groups() {
    groups_.resize(static_cast<size_t>(rect_.cols));
    if (matrix_.groups_of.empty()) {
      for (int64_t c = 0; c < rect_.cols; ++c)
        groups_[static_cast<size_t>(c)] = static_cast<int32_t>((rect_.col + c) / matrix_.col_block);
      return;
    }
    from_.read_range(matrix_.groups_of, rect_.col, rect_.col + rect_.cols,
                     std::as_writable_bytes(std::span(groups_)));
    for (size_t c = 0; c < groups_.size(); ++c) {
      if (groups_[c] >= 0 && groups_[c] < matrix_.groups) continue;
      throw ModelError(tr("{}: {} has group {} at element {}, of {} groups",
                          from_.file_of(matrix_.groups_of).string(), matrix_.groups_of, groups_[c],
                          rect_.col + static_cast<int64_t>(c), matrix_.groups),
                       tr("the file is damaged: fetch it again"));
    }
  }
  /// [rows, groups]
  void read_scales() {
    const int64_t groups = matrix_.groups;
    const bool lies_across = is_in(Packing::kGptq) || is_in(Packing::kAwq);
    const Rect rect = lies_across ? Rect{0, groups, rect_.row, rect_.rows} : scales_rect();
    const size_t count = static_cast<size_t>(rect.rows * rect.cols);
    std::vector<std::byte> bytes(count * dtype_size_bytes(matrix_.dtype));
    read_flat(matrix_.scales, rect, bytes.data(), dtype_size_bytes(matrix_.dtype));
    std::vector<float> stored(count);
    cast_elements(bytes.data(), matrix_.dtype, stored.data(), DType::kF32, count);
    scales_ = by_rows(stored, lies_across);
  }
  /// The rectangle of scales, which have a row for each `row_block` rows.
  Rect scales_rect() const {
    const int64_t first = rect_.row / matrix_.row_block,
                  last = (rect_.row + rect_.rows - 1) / matrix_.row_block;
    return {first, last - first + 1, 0, matrix_.groups};
  }
  /// A rectangle of whole rows, of a tensor of any shape.
  void read_flat(const std::string& name, const Rect& rect, std::byte* out, size_t item) const {
    if (is_in(Packing::kGptq) || is_in(Packing::kAwq))
      return from_.read_rect(name, rect, out, rect.cols);
    const int64_t begin = rect.row * rect.cols, count = rect.rows * rect.cols;
    from_.read_range(name, begin, begin + count, {out, static_cast<size_t>(count) * item});
  }
  /// Values of [groups, rows] or of [blocks of rows, groups] as [rows, groups].
  std::vector<float> by_rows(const std::vector<float>& stored, bool lies_across) const {
    const int64_t groups = matrix_.groups, first = rect_.row / matrix_.row_block;
    std::vector<float> values(static_cast<size_t>(rect_.rows * groups));
    for (int64_t r = 0; r < rect_.rows; ++r) {
      for (int64_t g = 0; g < groups; ++g) {
        const int64_t at = lies_across ? g * rect_.rows + r
                                       : ((rect_.row + r) / matrix_.row_block - first) * groups + g;
        values[static_cast<size_t>(r * groups + g)] = stored[static_cast<size_t>(at)];
      }
    }
    return values;
  }
  void read_zeros() {
    const int64_t groups = matrix_.groups, bits = matrix_.bits;
    const bool is_offset = is_in(Packing::kPacked);  // codes are stored plus half their range
    const float none = is_offset ? static_cast<float>(1 << (bits - 1)) : 0;
    zeros_.assign(static_cast<size_t>(rect_.rows * groups), none);
    if (matrix_.zeros.empty()) return;
    if (is_in(Packing::kScaled)) {
      const Rect rect = scales_rect();
      std::vector<int8_t> stored(static_cast<size_t>(rect.rows * rect.cols));
      read_flat(matrix_.zeros, rect, reinterpret_cast<std::byte*>(stored.data()), 1);
      zeros_ = by_rows({stored.begin(), stored.end()}, /*lies_across=*/false);
      return;
    }
    const auto [first, last] = words_of(rect_.row, rect_.rows, bits);
    const int64_t width = last - first;
    const Words words = is_in(Packing::kPacked)
                            ? read<uint32_t>(matrix_.zeros, {first, width, 0, groups})
                            : read<uint32_t>(matrix_.zeros, {0, groups, first, width});
    for (int64_t r = 0; r < rect_.rows; ++r) {
      for (int64_t g = 0; g < groups; ++g)
        zeros_[static_cast<size_t>(r * groups + g)] = zero_in(words, width, first, r, g);
    }
  }
  float zero_in(const Words& words, int64_t width, int64_t first, int64_t r, int64_t g) const {
    const int64_t bits = matrix_.bits, row = rect_.row + r;
    if (is_in(Packing::kAwq)) {
      const uint32_t word = words[static_cast<size_t>(g * width + row / 8 - first)];
      return static_cast<float>(word >> (4 * awq_place(row)) & 15u);
    }
    const bool is_packed = is_in(Packing::kPacked);
    const uint32_t zero =
        code_at_bit(&words[static_cast<size_t>(is_packed ? g : g * width)],
                    is_packed ? matrix_.groups : 1, row * bits - first * 32, bits);
    // A zero of 0 is stored as all ones.
    return static_cast<float>((zero + (matrix_.zeros_less_one ? 1 : 0)) & ((1u << bits) - 1));
  }

  const TensorSource& from_;
  const PackedMatrix& matrix_;
  Rect rect_;
  Words words_;
  int64_t skip_ = 0;  ///< bits of the first word, or of AWQ rows of it, that lie before
  int64_t width_ = 0;
  std::vector<float> numbers_, scales_, zeros_;
  std::vector<int32_t> groups_;
};

/// Location: empty (no rows) of a tensor that is as its file has it.
class PackedSource final : public SourceBase<PackedMatrix> {
 public:
  PackedSource(std::shared_ptr<const TensorSource> from,
               std::vector<std::pair<TensorInfo, PackedMatrix>> tensors)
      : from_(std::move(from)) {
    set_tensors(std::move(tensors));
    metadata_ = from_->metadata();
  }
  void read(const std::string& name, std::span<std::byte> out) const override {
    read_range(name, 0, infos_[place(name)].num_elements(), out);
  }
  void read_range(const std::string& name, int64_t begin, int64_t end,
                  std::span<std::byte> out) const override {
    const size_t index = place(name);
    const PackedMatrix& matrix = locations_[index];
    if (matrix.rows == 0) return from_->read_range(name, begin, end, out);
    check_range(infos_[index], begin, end, out.size());
    const size_t item = dtype_size_bytes(matrix.dtype);
    for_each_rect(matrix.cols, begin, end, [&](const Rect& rect, int64_t before) {
      decode(matrix, rect, out.data() + static_cast<size_t>(before) * item, rect.cols);
    });
  }
  void read_rect(const std::string& name, const Rect& rect, std::byte* out,
                 int64_t out_stride) const override {
    const size_t index = place(name);
    if (locations_[index].rows == 0) return from_->read_rect(name, rect, out, out_stride);
    check_rect(infos_[index], rect);
    if (rect.rows > 0 && rect.cols > 0) decode(locations_[index], rect, out, out_stride);
  }
  std::span<const std::byte> mapped(const std::string& name) const override {
    return locations_[place(name)].rows > 0 ? std::span<const std::byte>() : from_->mapped(name);
  }
  Storage storage(const std::string& name) const override {
    const PackedMatrix& matrix = locations_[place(name)];
    if (matrix.rows == 0) return from_->storage(name);
    Storage storage{matrix.storage_name(), 0};
    const std::set<std::string> parts(matrix.parts.begin(), matrix.parts.end());
    for (const std::string& part : parts) storage.size_bytes += from_->storage(part).size_bytes;
    return storage;
  }
  std::optional<Nf4Form> nf4_form(const std::string& name) const override {
    return locations_[place(name)].rows > 0 ? std::nullopt : from_->nf4_form(name);
  }
  Nf4Codes read_nf4(const std::string& name) const override { return from_->read_nf4(name); }
  std::filesystem::path file_of(const std::string& name) const override {
    const PackedMatrix& matrix = locations_[place(name)];
    return from_->file_of(matrix.rows > 0 ? matrix.codes : name);
  }
  std::vector<std::filesystem::path> files() const override { return from_->files(); }
  void forget() const override { from_->forget(); }

 private:
  size_t place(const std::string& name) const {
    const TensorInfo* info = find(name);
    if (!info) no_such_tensor(name, from_->files().front(), infos_);
    return static_cast<size_t>(info - infos_.data());
  }
  void decode(const PackedMatrix& matrix, const Rect& rect, std::byte* out, int64_t stride) const {
    const size_t item = dtype_size_bytes(matrix.dtype);
    std::vector<float> numbers(static_cast<size_t>(rect.cols));
    for (int64_t row = rect.row; row < rect.row + rect.rows; row += kRowsAtOnce) {
      const int64_t rows = std::min(kRowsAtOnce, rect.row + rect.rows - row);
      const Decoder decoder(*from_, matrix, {row, rows, rect.col, rect.cols});
      for (int64_t r = 0; r < rows; ++r) {
        decoder.row(r, numbers);
        put_numbers(matrix.dtype, numbers,
                    out + static_cast<size_t>((row - rect.row + r) * stride) * item);
      }
    }
  }

  std::shared_ptr<const TensorSource> from_;
};

}  // namespace

std::shared_ptr<const TensorSource> with_packed_weights(std::shared_ptr<const TensorSource> source,
                                                        const std::filesystem::path& directory) {
  const auto matrices = packed_matrices(*source, directory);
  if (matrices.empty()) return source;
  std::set<std::string> hidden;
  std::vector<std::pair<TensorInfo, PackedMatrix>> tensors;
  for (const auto& [name, matrix] : matrices) {
    hidden.insert(matrix.parts.begin(), matrix.parts.end());
    tensors.emplace_back(TensorInfo{name, matrix.dtype, {matrix.rows, matrix.cols}}, matrix);
  }
  for (const TensorInfo& info : source->tensors()) {
    if (!hidden.count(info.name)) tensors.emplace_back(info, PackedMatrix());
  }
  return std::make_shared<PackedSource>(std::move(source), std::move(tensors));
}

bool is_packed_linear(const TensorSource& source, const std::string& name) {
  const std::string type = source.storage(name).type;
  return type.starts_with("GPTQ ") || type.starts_with("AWQ ");
}

std::string packed_text(const TensorSource& source) {
  std::set<std::string> kinds;
  int64_t count = 0;
  for (const TensorInfo& info : source.tensors()) {
    const std::string type = source.storage(info.name).type;
    const bool is_8bit_float = type == "F8_E4M3" && info.shape.size() == 2;
    if (!is_packed_linear(source, info.name) && !is_8bit_float &&
        !type.starts_with("compressed-tensors "))
      continue;
    kinds.insert(type);
    ++count;
  }
  if (count == 0) return "";
  return fmt::format("{} x {}", count, fmt::join(kinds, ", "));
}

}  // namespace danlu::weights
