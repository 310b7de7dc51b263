#include "ops/gemm_cpu.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <new>
#include <vector>

namespace danlu::ops::cpu {

char* ScratchMemory::of(size_t bytes) {
  constexpr size_t kPage = 4096;
  if (bytes > size_) {
    size_ = (bytes + kPage - 1) / kPage * kPage;
    data_.reset(static_cast<char*>(std::aligned_alloc(kPage, size_)));
    if (!data_) {
      size_ = 0;
      throw std::bad_alloc();
    }
  }
  return data_.get();
}

namespace gemm_detail {

constexpr size_t kWord = 4;
// Rows of the left factor that stay in a core's second cache beside a panel: a multiple of 6.
constexpr size_t kBlockRows = 96;
constexpr size_t kLeastBlockRows = 24;
// Steps of k that a tile goes before it passes to the next rows.
constexpr size_t kBlockSteps = 1024;
// What is packed at a time of either factor: about half of a third cache of eight cores.
constexpr size_t kGroupBytes = size_t{4} << 20;

size_t rounded_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

Factor from(const Factor& factor, size_t first) {
  const size_t size = factor.element == Element::kF32 ? 4 : 2;
  return {factor.element, static_cast<const char*>(factor.data) + first * factor.across * size,
          factor.along, factor.across};
}

template <typename Body>
void in_parallel(size_t count, const Body& body) {
  at::parallel_for(0, static_cast<int64_t>(count), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) body(static_cast<size_t>(i));
  });
}

/// Rows of the left factor as the kernels read them.
struct LeftRows {
  const char* data;
  size_t row, step;  ///< bytes
};

class Product {
 public:
  explicit Product(const MatrixProduct& product)
      : p_(product),
        arithmetic_(product.left.element == Element::kBF16 &&
                            product.right.element == Element::kBF16 && multiplies_bf16()
                        ? Arithmetic::kBF16
                        : Arithmetic::kF32),
        steps_(steps_of(arithmetic_, product.k)),
        columns_(panel_columns(arithmetic_)),
        block_rows_(block_rows()) {
    const Element native = arithmetic_ == Arithmetic::kBF16 ? Element::kBF16 : Element::kF32;
    reads_left_in_place_ =
        p_.left.element == native && p_.left.along == 1 && p_.k % step_of(arithmetic_) == 0;
    if (p_.bias) {
      wide_bias_.resize(p_.n);
      widen(p_.element, 1, p_.n, p_.bias, p_.n, wide_bias_.data(), p_.n);
    }
  }

  void run() {
    static thread_local ScratchMemory right_memory, left_memory;
    const size_t panel_bytes = steps_ * columns_ * kWord, row_bytes = steps_ * kWord;
    const size_t panels = (p_.n + columns_ - 1) / columns_;
    const size_t group =
        std::clamp<size_t>(kGroupBytes / std::max<size_t>(1, panel_bytes), 1, panels);
    const size_t rows =
        reads_left_in_place_
            ? p_.m
            : std::min(p_.m, std::max(block_rows_, kGroupBytes / std::max<size_t>(1, row_bytes) /
                                                       block_rows_ * block_rows_));
    char* const right = right_memory.of(group * panel_bytes);
    char* const left =
        reads_left_in_place_ ? nullptr : left_memory.of(rounded_up(rows, block_rows_) * row_bytes);
    for (size_t panel = 0; panel < panels; panel += group) {
      const size_t count = std::min(group, panels - panel);
      in_parallel(count, [&](size_t i) { pack_panel(panel + i, right + i * panel_bytes); });
      for (size_t row = 0; row < p_.m; row += rows) {
        const size_t here = std::min(rows, p_.m - row),
                     blocks = (here + block_rows_ - 1) / block_rows_;
        if (left) in_parallel(blocks, [&](size_t i) { pack_block(row, here, i, left); });
        in_parallel(blocks * count, [&](size_t task) {
          const size_t block = task / count, i = task % count;
          tile(row + block * block_rows_, std::min(block_rows_, here - block * block_rows_),
               panel + i, left_rows(row, block, left), right + i * panel_bytes);
        });
      }
    }
  }

 private:
  /// Fewer where there would not be enough blocks for all threads.
  size_t block_rows() const {
    const size_t wanted = 2 * static_cast<size_t>(at::get_num_threads());
    const size_t panels = (p_.n + columns_ - 1) / columns_;
    size_t rows = kBlockRows;
    while (rows > kLeastBlockRows && panels * ((p_.m + rows - 1) / rows) < wanted) rows /= 2;
    return rows;
  }

  void pack_panel(size_t panel, char* to) const {
    const size_t first = panel * columns_;
    pack(arithmetic_, from(p_.right, first), p_.k, std::min(columns_, p_.n - first), columns_, to);
  }

  void pack_block(size_t first, size_t rows, size_t block, char* left) const {
    const size_t begin = block * block_rows_;
    pack(arithmetic_, from(p_.left, first + begin), p_.k, std::min(block_rows_, rows - begin),
         block_rows_, left + begin * steps_ * kWord);
  }

  LeftRows left_rows(size_t first, size_t block, const char* left) const {
    const size_t begin = block * block_rows_;
    if (left) return {left + begin * steps_ * kWord, kWord, block_rows_ * kWord};
    const Factor rows = from(p_.left, first + begin);
    const size_t size = rows.element == Element::kF32 ? 4 : 2;
    return {static_cast<const char*>(rows.data), rows.across * size, kWord};
  }

  void tile(size_t row, size_t rows, size_t panel, const LeftRows& left, const char* right) const {
    static thread_local ScratchMemory memory;
    const size_t column = panel * columns_, width = std::min(columns_, p_.n - column);
    const size_t size = p_.element == Element::kF32 ? 4 : 2;
    char* const to = static_cast<char*>(p_.c) + (row * p_.c_row + column) * size;
    const bool is_direct = p_.element == Element::kF32 && width == columns_ && !p_.bias;
    float* const c = is_direct ? reinterpret_cast<float*>(to)
                               : reinterpret_cast<float*>(memory.of(rows * columns_ * kWord));
    const size_t c_row = is_direct ? p_.c_row : columns_;
    for (size_t step = 0; step < std::max<size_t>(1, steps_); step += kBlockSteps) {
      multiply_tile(arithmetic_,
                    {rows, std::min(kBlockSteps, steps_ - step), left.data + step * left.step,
                     left.row, left.step, right + step * columns_ * kWord, c, c_row,
                     step > 0 || (is_direct && p_.add)});
    }
    if (!is_direct) finish(rows, width, column, c, to);
  }

  void finish(size_t rows, size_t width, size_t column, float* c, char* to) const {
    if (p_.bias || p_.add) {
      for (size_t r = 0; r < rows; ++r) {
        float* row = c + r * columns_;
        const float* more =
            p_.add ? reinterpret_cast<const float*>(to) + r * p_.c_row : wide_bias_.data() + column;
        for (size_t j = 0; j < width; ++j) row[j] += more[j];
      }
    }
    narrow(p_.element, rows, width, c, columns_, to, p_.c_row);
  }

  const MatrixProduct& p_;
  Arithmetic arithmetic_;
  size_t steps_, columns_, block_rows_;
  bool reads_left_in_place_ = false;
  std::vector<float> wide_bias_;
};

}  // namespace gemm_detail

void multiply(const MatrixProduct& product) {
  if (product.m == 0 || product.n == 0) return;
  gemm_detail::Product(product).run();
}

}  // namespace danlu::ops::cpu
