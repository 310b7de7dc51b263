// ops/gemm_kernels_cpu.h: the inner loops of matrix products, for one thread each: operands laid
// out for the registers ("packed"), and the product of two such blocks. The instruction set is
// chosen when the program runs. Internal to ops; ops/gemm_cpu.h drives them.
//
// The two arithmetics work on 32-bit words: one f32, or two bf16 neighbours along k, whose products
// are added by one instruction. A step is a word's worth of k: one, or two.
//
// A panel is a block of columns of the right factor: [steps][columns] words, zero beyond the end of
// k and of the columns. The left factor is read in place where k is contiguous and whole words, or
// from a block [steps][rows] words.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/cpu_class.h"
#include "ops/row_kernels_cpu.h"

namespace danlu::ops::cpu {

enum class Arithmetic {
  kF32,   ///< every processor; bf16 and f16 operands are widened as they are packed
  kBF16,  ///< bf16 operands, sums in f32; REQUIRES: has_bf16_dots()
};

/// What two factors are multiplied in (base/cpu_class.h).
inline Arithmetic arithmetic_of(bool are_both_bf16) {
  return are_both_bf16 && multiplies_bf16_faster() ? Arithmetic::kBF16 : Arithmetic::kF32;
}
/// Columns of a panel.
size_t panel_columns(Arithmetic arithmetic);
inline size_t step_of(Arithmetic arithmetic) { return arithmetic == Arithmetic::kF32 ? 1 : 2; }
inline size_t steps_of(Arithmetic arithmetic, size_t k) {
  return (k + step_of(arithmetic) - 1) / step_of(arithmetic);
}

/// A factor of a product, seen along k and across it (rows of the left one, columns of the right
/// one): element (k, j) is data[k * along + j * across]. REQUIRES: along == 1 or across == 1.
struct Factor {
  Element element;
  const void* data;
  size_t along, across;
};

/// to [steps][width] words = elements (k, j) for j < count, zeros up to `width`.
void pack(Arithmetic arithmetic, const Factor& factor, size_t k, size_t count, size_t width,
          void* to);

/// c [rows, columns of a panel] (+)= left right, in f32. Strides of `left` are in bytes.
struct TileProduct {
  size_t rows, steps;
  const void* left;
  size_t left_row, left_step;
  const void* panel;
  float* c;
  size_t c_row;  ///< in elements
  bool add;
  /// The panel that this thread reads next: f32 tiles ask for it while they compute. May be null.
  const void* next = nullptr;
  size_t next_bytes = 0;
  /// Columns of c that are wanted; vectors of others may be left out. 0: the panel's.
  size_t columns = 0;
};
void multiply_tile(Arithmetic arithmetic, const TileProduct& product);

/// The same in bf16.
void multiply_bf16_tile(const TileProduct& product);
size_t bf16_panel_columns();

}  // namespace danlu::ops::cpu
