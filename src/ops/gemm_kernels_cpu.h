// ops/gemm_kernels_cpu.h: the inner loops of matrix products, for one thread each: operands laid
// out for the registers ("packed"), and the product of two such blocks. The instruction set is
// chosen when the program runs. Internal to ops; ops/gemm_cpu.h drives them.
//
// All arithmetics work on 32-bit words: one f32, or two bf16 neighbours along k, whose products
// are added by one instruction. A step is a word's worth of k: one, or two. Steps come in groups
// that kernels take at once: of one, or of the 16 that a tile of AMX is long.
//
// A panel is a block of columns of the right factor: [steps][columns] words, zero beyond the end of
// k and of the columns. The left factor is read in place where k is contiguous and whole groups, or
// from a block: [steps][rows] words, of AMX [rows][steps], zero beyond the end of k.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/cpu_class.h"
#include "ops/row_kernels_cpu.h"

namespace danlu::ops::cpu {

enum class Arithmetic {
  kF32,   ///< every processor; bf16 and f16 operands are widened as they are packed
  kBF16,  ///< bf16 operands, sums in f32; REQUIRES: has_bf16_dots()
  kAmx,   ///< the same in tile registers (base/tile_registers.h), or in the model of them
};

/// What two factors are multiplied in (base/cpu_class.h).
Arithmetic arithmetic_of(bool are_both_bf16);
/// For tests: from now on, or no more, products of bf16 go through the model of the registers, on
/// every processor. Nothing may be multiplied meanwhile.
void multiply_in_model(bool on);

/// Columns of a panel.
size_t panel_columns(Arithmetic arithmetic);
inline size_t step_of(Arithmetic arithmetic) { return arithmetic == Arithmetic::kF32 ? 1 : 2; }
/// Steps of a group, and what of k it holds.
inline size_t group_steps(Arithmetic arithmetic) { return arithmetic == Arithmetic::kAmx ? 16 : 1; }
inline size_t group_of(Arithmetic arithmetic) {
  return group_steps(arithmetic) * step_of(arithmetic);
}
/// Whole groups.
inline size_t steps_of(Arithmetic arithmetic, size_t k) {
  return (k + group_of(arithmetic) - 1) / group_of(arithmetic) * group_steps(arithmetic);
}
/// The first step of the group that element k lies in.
inline size_t first_step_of(Arithmetic arithmetic, size_t k) {
  return k / group_of(arithmetic) * group_steps(arithmetic);
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

/// Rows of a left factor as kernels read them: words, `step` bytes from one to the next along k.
struct LeftRows {
  const char* data;
  size_t row, step;  ///< bytes
};
/// A left factor's `width` rows as a block of so many bytes, of which pack_left fills `count`.
size_t left_bytes(Arithmetic arithmetic, size_t k, size_t width);
void pack_left(Arithmetic arithmetic, const Factor& factor, size_t k, size_t count, size_t width,
               char* to);
LeftRows packed_left(Arithmetic arithmetic, size_t k, size_t width, const char* block);

/// While it is there this thread may multiply tiles in `arithmetic`: AMX's registers have a shape
/// until the last of them goes, and then nothing that the system would have to save.
class TileShapes {
 public:
  explicit TileShapes(Arithmetic arithmetic);
  ~TileShapes();
  TileShapes(const TileShapes&) = delete;
  TileShapes& operator=(const TileShapes&) = delete;

 private:
  const bool counts_;
};

/// c [rows, columns of a panel] (+)= left right, in f32. Strides of `left` are in bytes; AMX wants
/// a left_step of one word, and whole groups of steps. REQUIRES: a TileShapes of this thread.
struct TileProduct {
  size_t rows, steps;
  const void* left;
  size_t left_row, left_step;
  const void* panel;
  float* c;
  size_t c_row;  ///< in elements
  bool add;
  /// What this thread reads next, a panel or what one is packed from: tiles of f32 and of bf16 ask
  /// for it while they compute. May be null.
  const void* next = nullptr;
  size_t next_bytes = 0;
  /// Columns of c that are wanted; vectors of others may be left out. 0: the panel's.
  size_t columns = 0;
};
void multiply_tile(Arithmetic arithmetic, const TileProduct& product);

/// The same in bf16, and in AMX's registers or the model.
void multiply_bf16_tile(const TileProduct& product);
size_t bf16_panel_columns();
void multiply_amx_tile(const TileProduct& product);
size_t amx_panel_columns();

}  // namespace danlu::ops::cpu
