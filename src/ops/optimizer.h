// ops/optimizer.h: what a step of the optimizer does to flat tensors, on their device.
#pragma once
#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "ops/chunks.h"

namespace danlu::ops {

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

/// Flat tensors of one length and device.
struct AdamWState {
  at::Tensor master, exp_avg, exp_avg_sq;  ///< f32, updated in place
  at::Tensor grad;                         ///< f32
  at::Tensor weight;  ///< becomes the master, rounded to its type; undefined: there is none
};
/// Updates what lies in `chunks`, each by the scalars of its index; what lies in none stays.
/// Source: arXiv:1711.05101 algorithm 2, decay first, as torch.optim.AdamW orders it.
void adamw_update(const AdamWState& state, const std::vector<Chunk>& chunks,
                  std::span<const AdamWScalars> scalars);

/// Of each chunk of a flat f32 tensor the sum of squares, in f64, added in a fixed order.
std::vector<double> sums_of_squares(const at::Tensor& values, const std::vector<Chunk>& chunks);

/// Whether no element is infinite or NaN.
bool all_finite(const at::Tensor& x);

namespace oracle {
/// In ATen's operators: what devices without a kernel of their own run, and what kernels are held
/// against.
void adamw_update(const AdamWState& state, const std::vector<Chunk>& chunks,
                  std::span<const AdamWScalars> scalars);
std::vector<double> sums_of_squares(const at::Tensor& values, const std::vector<Chunk>& chunks);
bool all_finite(const at::Tensor& x);
}  // namespace oracle
}  // namespace danlu::ops
