// Products of bf16 in the tile registers of AMX (base/tile_registers.h), written once for them and
// for the model of them.
//
// Two by two registers of 16 x 16 sums meet two of the left factor and two of the panel, 32 numbers
// along k at a time: each that is loaded is used twice. Rows that are left over are a shape of the
// registers, columns and k are padded with zeros where they are packed. Sums go through k in one
// order.
#include <algorithm>
#include <cstring>

#include "base/cpu_class.h"
#include "base/error.h"
#include "base/tile_registers.h"
#include "ops/gemm_kernels_cpu.h"
#include "ops/scratch_cpu.h"

namespace danlu::ops::cpu {
namespace amx {

constexpr size_t kWord = 4;
/// A register's rows, and the words in each.
constexpr size_t kRows = tiles::kRows, kWords = tiles::kRowBytes / kWord;
constexpr size_t kColumns = 2 * kWords;
// Between rows of a packed left factor: rows a power of two apart would share sets of a cache.
constexpr size_t kGap = kWords;

bool is_modelled = false;

/// The registers' shapes for `rows` rows, up to two registers of them: sums are 0 to 3, row by row,
/// the left factor's 4 and 5, the panel's 6 and 7.
tiles::Configuration shapes_for(size_t rows) {
  tiles::Configuration shapes;
  for (const size_t down : {0, 1}) {
    const size_t own = std::min(rows - std::min(rows, down * kRows), kRows);
    const size_t bytes = own > 0 ? tiles::kRowBytes : 0;
    for (const size_t tile : {2 * down, 2 * down + 1, 4 + down}) shapes.set(tile, own, bytes);
    shapes.set(6 + down, kRows, tiles::kRowBytes);
  }
  return shapes;
}

/// kDown by kAcross registers of sums.
template <typename Tiles, size_t kDown, size_t kAcross>
void multiply_rows(const TileProduct& p, const char* left, float* c) {
  const size_t left_row = p.left_row, c_row = p.c_row * sizeof(float);
  constexpr size_t kPanelRow = kColumns * kWord;
  float* const lower = c + kRows * p.c_row;
  if (p.add) {
    Tiles::template load<0>(c, c_row);
    if constexpr (kAcross > 1) Tiles::template load<1>(c + kWords, c_row);
    if constexpr (kDown > 1) Tiles::template load<2>(lower, c_row);
    if constexpr (kDown > 1 && kAcross > 1) Tiles::template load<3>(lower + kWords, c_row);
  } else {
    Tiles::template zero<0>();
    if constexpr (kAcross > 1) Tiles::template zero<1>();
    if constexpr (kDown > 1) Tiles::template zero<2>();
    if constexpr (kDown > 1 && kAcross > 1) Tiles::template zero<3>();
  }
  const char* panel = static_cast<const char*>(p.panel);
  for (size_t group = p.steps / kWords; group > 0; --group) {
    Tiles::template load<6>(panel, kPanelRow);
    Tiles::template load<4>(left, left_row);
    Tiles::template multiply_add<0, 4, 6>();
    if constexpr (kAcross > 1) {
      Tiles::template load<7>(panel + tiles::kRowBytes, kPanelRow);
      Tiles::template multiply_add<1, 4, 7>();
    }
    if constexpr (kDown > 1) {
      Tiles::template load<5>(left + kRows * left_row, left_row);
      Tiles::template multiply_add<2, 5, 6>();
      if constexpr (kAcross > 1) Tiles::template multiply_add<3, 5, 7>();
    }
    left += tiles::kRowBytes;
    panel += kWords * kPanelRow;
  }
  Tiles::template store<0>(c, c_row);
  if constexpr (kAcross > 1) Tiles::template store<1>(c + kWords, c_row);
  if constexpr (kDown > 1) Tiles::template store<2>(lower, c_row);
  if constexpr (kDown > 1 && kAcross > 1) Tiles::template store<3>(lower + kWords, c_row);
}

template <typename Tiles, size_t kAcross>
void multiply_all_rows(const TileProduct& p) {
  const char* left = static_cast<const char*>(p.left);
  float* c = p.c;
  size_t rows = p.rows;
  for (; rows >= 2 * kRows; rows -= 2 * kRows) {
    multiply_rows<Tiles, 2, kAcross>(p, left, c);
    left += 2 * kRows * p.left_row;
    c += 2 * kRows * p.c_row;
  }
  if (rows == 0) return;
  Tiles::configure(shapes_for(rows));
  rows > kRows ? multiply_rows<Tiles, 2, kAcross>(p, left, c)
               : multiply_rows<Tiles, 1, kAcross>(p, left, c);
  Tiles::configure(shapes_for(2 * kRows));
}

template <typename Tiles>
void multiply(const TileProduct& p) {
  if (p.left_step != kWord || p.steps % kWords != 0)
    throw InternalError("[gemm] a left factor that tile registers cannot read");
  p.columns == 0 || p.columns > kWords ? multiply_all_rows<Tiles, 2>(p)
                                       : multiply_all_rows<Tiles, 1>(p);
}

/// work(Tiles) with the registers in use.
template <typename Work>
void with_tiles(const Work& work) {
  if (is_modelled) return work(tiles::Model());
#if defined(__x86_64__)
  if (cpu_class() == CpuClass::kAmx) return work(tiles::Hardware());
#endif
  throw InternalError("[gemm] no tile registers here");
}

size_t& shapes_in_thread() {
  static thread_local size_t count = 0;
  return count;
}

}  // namespace amx

Arithmetic arithmetic_of(bool are_both_bf16) {
  if (!are_both_bf16) return Arithmetic::kF32;
  if (amx::is_modelled || cpu_class() == CpuClass::kAmx) return Arithmetic::kAmx;
  return multiplies_bf16_faster() ? Arithmetic::kBF16 : Arithmetic::kF32;
}

void multiply_in_model(bool on) { amx::is_modelled = on; }

size_t amx_panel_columns() { return amx::kColumns; }

TileShapes::TileShapes(Arithmetic arithmetic) : counts_(arithmetic == Arithmetic::kAmx) {
  if (!counts_ || amx::shapes_in_thread()++ > 0) return;
  amx::with_tiles([]<typename Tiles>(Tiles) { Tiles::configure(amx::shapes_for(2 * amx::kRows)); });
}

TileShapes::~TileShapes() {
  if (!counts_ || --amx::shapes_in_thread() > 0) return;
  amx::with_tiles([]<typename Tiles>(Tiles) { Tiles::release(); });
}

void multiply_amx_tile(const TileProduct& p) {
  amx::with_tiles([&]<typename Tiles>(Tiles) { amx::multiply<Tiles>(p); });
}

size_t left_bytes(Arithmetic arithmetic, size_t k, size_t width) {
  const size_t gap = arithmetic == Arithmetic::kAmx ? amx::kGap : 0;
  return (steps_of(arithmetic, k) + gap) * width * amx::kWord;
}

LeftRows packed_left(Arithmetic arithmetic, size_t k, size_t width, const char* block) {
  if (arithmetic == Arithmetic::kAmx) return {block, left_bytes(arithmetic, k, 1), amx::kWord};
  return {block, amx::kWord, width * amx::kWord};
}

void pack_left(Arithmetic arithmetic, const Factor& factor, size_t k, size_t count, size_t width,
               char* to) {
  if (arithmetic != Arithmetic::kAmx) return pack(arithmetic, factor, k, count, width, to);
  const size_t row = left_bytes(arithmetic, k, 1), size = size_of(factor.element);
  if (factor.along == 1) {
    for (size_t j = 0; j < count; ++j) {
      char* const own = to + j * row;
      std::memcpy(own, static_cast<const char*>(factor.data) + j * factor.across * size, k * size);
      std::memset(own + k * size, 0, row - k * size);
    }
    return;
  }
  // Pairs along k first, [steps][count] words, which are then turned as words of f32 would be.
  static thread_local ScratchMemory memory;
  const size_t steps = steps_of(arithmetic, k);
  char* const pairs = memory.of(steps * count * amx::kWord);
  pack(arithmetic, factor, k, count, count, pairs);
  pack(Arithmetic::kF32, {Element::kF32, pairs, 1, count}, count, steps, row / amx::kWord, to);
}

}  // namespace danlu::ops::cpu
