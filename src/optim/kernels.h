// optim/kernels.h: the inner loops of the optimizer over plain arrays.
#pragma once
#include <cstdint>

namespace danlu::optim {

/// Numbers of one AdamW update, the same for every element of a parameter.
struct AdamWScalars {
  float beta1, beta2;
  float one_minus_beta1, one_minus_beta2;  ///< taken in f64: 1 - 0.999f is off by 1e-5 of itself
  float eps;
  float step_size;       ///< lr / (1 - beta1^t)
  float inv_sqrt_bias2;  ///< 1 / sqrt(1 - beta2^t)
  float keep;            ///< 1 - lr * weight_decay
  float grad_scale;      ///< applied to the gradient first: unscaling and clipping
};

/// One pass over `count` elements: m, v, master updated in place.
/// Source: arXiv:1711.05101 algorithm 2, decay first, as torch.optim.AdamW orders it.
void adamw_update(float* master, float* exp_avg, float* exp_avg_sq, const float* grad,
                  int64_t count, const AdamWScalars& scalars);

/// Sum of squares in f64, added in a fixed order.
double sum_of_squares(const float* values, int64_t count);

/// to[i] += from[i], from given as bf16 bits; and the rounding of f32 to bf16 (nearest even).
void add_bf16(float* to, const uint16_t* from, int64_t count);
void round_to_bf16(uint16_t* to, const float* from, int64_t count);

}  // namespace danlu::optim
