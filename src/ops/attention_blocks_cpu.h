// ops/attention_blocks_cpu.h: rows of heads as packed blocks, and products with them, for one
// thread each. Internal to ops/attention_cpu.cpp.
//
// Units: strides of Rows in elements, of LeftRows in bytes. Blocks hold up to kBlockKeys rows
// [rows, D].
#pragma once
#include <algorithm>
#include <cstdint>

#include "ops/gemm_kernels_cpu.h"
#include "ops/scratch_cpu.h"
#include "ops/unsigned_of.h"

namespace danlu::ops::cpu::attention_blocks {

constexpr size_t kWord = 4;
// A tile's scores with a block, [96, 256] f32, and the block's panels stay in a core's second
// cache.
constexpr int64_t kTileQueries = 96;
constexpr int64_t kBlockKeys = 256;
// Rows a power of two apart would share cache sets.
constexpr int64_t kScoreRow = kBlockKeys + 16;

/// Some keys of a block or of a span, counted in it: [begin, end).
struct Keys {
  int64_t begin, end;
};

/// One head of a [tokens, heads, D] tensor.
struct Rows {
  Element element;
  char* data;
  size_t token;  ///< elements from one token to the next
  size_t size() const { return size_of(element); }
  char* row(int64_t index) const { return data + unsigned_of(index) * token * size(); }
  float* f32(int64_t index) const { return reinterpret_cast<float*>(row(index)); }
};
/// How blocks of up to kBlockKeys rows of a head are packed, D wide.
class Packing {
 public:
  Packing(Arithmetic arithmetic, int64_t dim)
      : arithmetic_(arithmetic),
        columns_(panel_columns(arithmetic)),
        dim_(unsigned_of(dim)),
        dim_steps_(steps_of(arithmetic, dim_)),
        panels_(rounded_up(dim_) / columns_) {}

  Arithmetic arithmetic() const { return arithmetic_; }
  size_t columns() const { return columns_; }
  size_t dim() const { return dim_; }
  size_t dim_steps() const { return dim_steps_; }
  size_t panels() const { return panels_; }
  Element element() const {
    return arithmetic_ == Arithmetic::kF32 ? Element::kF32 : Element::kBF16;
  }
  size_t steps(int64_t rows) const { return steps_of(arithmetic_, unsigned_of(rows)); }
  size_t first_step(int64_t row) const { return first_step_of(arithmetic_, unsigned_of(row)); }
  size_t turned_bytes(int64_t rows) const {
    return rounded_up(unsigned_of(rows)) * dim_steps_ * kWord;
  }
  size_t stacked_bytes(int64_t rows) const { return panels_ * panel_bytes(rows); }

  /// For products with x^T: panels of `columns()` rows each.
  void turn(const Rows& x, int64_t rows, char* to) const {
    const size_t count = unsigned_of(rows);
    for (size_t row = 0; row < count; row += columns_) {
      pack(arithmetic_, {x.element, x.row(static_cast<int64_t>(row)), 1, x.token}, dim_,
           std::min(columns_, count - row), columns_, to + row * dim_steps_ * kWord);
    }
  }
  /// For products with x: panels of `columns()` of its D columns each.
  void stack(const Rows& x, int64_t rows, char* to) const {
    for (size_t panel = 0; panel < panels_; ++panel) {
      const size_t first = panel * columns_;
      pack(arithmetic_, {x.element, x.data + first * x.size(), x.token, 1}, unsigned_of(rows),
           std::min(columns_, dim_ - first), columns_, to + panel * panel_bytes(rows));
    }
  }
  size_t panel_bytes(int64_t rows) const { return columns_ * steps(rows) * kWord; }

 private:
  size_t rounded_up(size_t value) const { return (value + columns_ - 1) / columns_ * columns_; }

  Arithmetic arithmetic_;
  size_t columns_, dim_, dim_steps_, panels_;
};

/// Queries and keys are as wide as each other, values as their results.
struct Packings {
  Packing key, value;
};

/// Rows of a head as a left factor: in place, or widened or padded in `scratch`.
inline LeftRows left_of(const Packing& packing, const Rows& x, int64_t rows,
                        ScratchMemory& scratch) {
  if (x.element == packing.element() && packing.dim() % group_of(packing.arithmetic()) == 0)
    return {x.data, x.token * x.size(), kWord};
  const size_t row = packing.dim_steps() * kWord;
  char* const to = scratch.of(unsigned_of(rows) * row);
  std::fill(to, to + unsigned_of(rows) * row, char{0});
  for (int64_t r = 0; r < rows; ++r) {
    char* const at = to + unsigned_of(r) * row;
    if (packing.arithmetic() == Arithmetic::kF32) {
      widen(x.element, 1, packing.dim(), x.row(r), 0, reinterpret_cast<float*>(at), 0);
    } else {
      std::copy_n(x.row(r), packing.dim() * x.size(), at);
    }
  }
  return {to, row, kWord};
}

/// scores [rows, keys] = left (rows of D) times the turned block; keys from `first` on of it.
inline void score(const Packing& packing, const LeftRows& left, int64_t rows, const char* turned,
                  Keys keys, float* scores) {
  const size_t columns = packing.columns();
  for (size_t key = unsigned_of(keys.begin) / columns * columns; key < unsigned_of(keys.end);
       key += columns) {
    multiply_tile(
        packing.arithmetic(),
        {unsigned_of(rows), packing.dim_steps(), left.data, left.row, left.step,
         turned + key * packing.dim_steps() * kWord, scores + key, unsigned_of(kScoreRow), false});
  }
}

/// A stacked block of `rows` rows, of which `used` enter the product; what the left factor has of
/// the others in the same groups of steps is zero.
struct Stacked {
  const char* data;
  int64_t rows;
  Keys used;
};

/// sums [rows, D] += left (a word for each step of the block) times a stacked block.
inline void add_product(const Packing& packing, const LeftRows& left, int64_t rows,
                        const Stacked& stacked, float* sums, size_t sums_row,
                        ScratchMemory& scratch) {
  const size_t first_step = packing.first_step(stacked.used.begin);
  const size_t steps = packing.steps(stacked.used.end) - first_step;
  const size_t columns = packing.columns();
  for (size_t panel = 0; panel < packing.panels(); ++panel) {
    const size_t first = panel * columns, width = std::min(columns, packing.dim() - first);
    float* const to = sums + first;
    const bool is_whole = width == columns;
    float* const c =
        is_whole ? to : reinterpret_cast<float*>(scratch.of(unsigned_of(rows) * columns * kWord));
    multiply_tile(
        packing.arithmetic(),
        {unsigned_of(rows), steps, left.data + first_step * left.step, left.row, left.step,
         stacked.data + panel * packing.panel_bytes(stacked.rows) + first_step * columns * kWord, c,
         is_whole ? sums_row : columns, is_whole, nullptr, 0, width});
    if (is_whole) continue;
    for (int64_t r = 0; r < rows; ++r) {
      for (size_t j = 0; j < width; ++j)
        to[unsigned_of(r) * sums_row + j] += c[unsigned_of(r) * columns + j];
    }
  }
}

}  // namespace danlu::ops::cpu::attention_blocks
