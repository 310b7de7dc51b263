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
  const void* bias = nullptr;  ///< [n]
  bool add = false;            ///< REQUIRES: c is f32, and there is no bias
};
void multiply(const MatrixProduct& product);

}  // namespace danlu::ops::cpu
