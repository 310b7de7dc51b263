// ops/delta_kernels_cpu.h: the gated delta rule (ops/gated_delta.h) of one value head over one
// sequence, for one thread. The instruction set is chosen when the program runs. Internal to ops.
#pragma once
#include <cstddef>

namespace danlu::ops::cpu {

/// Arrays are f32. Those of tokens have one row each, that many elements apart.
struct DeltaHead {
  size_t tokens, key_dim, value_dim;
  const float *q, *k;         ///< as they are given: neither of unit length nor scaled
  const float* v;             ///< also the strides of `out` and of gradients of v
  const float *decay, *step;  ///< a number for each token
  size_t key_stride, value_stride, number_stride;
  float*
      memory;  ///< [key_dim, value_dim]: before the first token; forward leaves that after the last
};

/// out: rows as v's; null: only the memory is wanted.
void delta_forward(const DeltaHead& head, float* out);

struct DeltaHeadGrads {
  const float* out;         ///< rows as v's
  float *q, *k;             ///< added to
  float *v, *decay, *step;  ///< set
};
/// REQUIRES: head.memory is zero; it is scratch.
void delta_backward(const DeltaHead& head, const DeltaHeadGrads& grads);

}  // namespace danlu::ops::cpu
