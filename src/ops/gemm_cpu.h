// ops/gemm_cpu.h: products of whole matrices on all threads of the CPU. Internal to ops.
//
// Loops as in Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (2008):
// the right factor is packed in groups of panels by all threads, then blocks of rows times panels
// are dealt out. Sums run over k in one order, whoever computes them: the result does not depend on
// the number of threads.
#pragma once
#include <cstddef>

#include "ops/gemm_kernels_cpu.h"

namespace danlu::ops::cpu {

/// A right factor that is nowhere as a whole: its tiles are made as they are packed, by several
/// threads.
class RightTiles {
 public:
  RightTiles() = default;
  RightTiles(const RightTiles&) = delete;
  RightTiles& operator=(const RightTiles&) = delete;
  virtual ~RightTiles() = default;
  /// Elements (k, column) to (k + k_count - 1, column + count - 1) in memory that holds them until
  /// this thread's next call, of the type that MatrixProduct::right names.
  virtual Factor tile(size_t k, size_t k_count, size_t column, size_t count) const = 0;
};

/// c [m, n] = left [m, k] right [k, n] (+ bias), or c += left right.
/// Types   f32, bf16 and f16 in any mixture. Two factors of bf16 are multiplied as they are where
///         that is faster (base/cpu_class.h; denormal ones count as 0), all others as f32; sums
///         are f32, and c is rounded once.
struct MatrixProduct {
  size_t m, n, k;
  Factor left, right;  ///< `across` goes over the rows of the left one, the columns of the right
  Element element;     ///< of c and the bias
  void* c;
  size_t c_row;
  const void* bias = nullptr;         ///< [n]
  bool add = false;                   ///< REQUIRES: c is f32, and there is no bias
  const RightTiles* tiles = nullptr;  ///< the right factor, of which `right` has the type alone
  const void* next = nullptr;  ///< the next call's right factor, if it is laid out as this one
};
void multiply(const MatrixProduct& product);

}  // namespace danlu::ops::cpu
