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

/// Flat tensors of one length and device, each contiguous.
struct AdamWState {
  at::Tensor master;               ///< f32, updated in place; undefined: `weight` and `low` hold it
  at::Tensor exp_avg, exp_avg_sq;  ///< f32, updated in place
  at::Tensor grad;                 ///< f32
  /// Becomes the master, rounded to its type: to bf16 as split_master does, whether there is a
  /// `low` or not. Undefined: there is none.
  at::Tensor weight;
  at::Tensor low = {};  ///< as of split_master, of a bf16 `weight`; undefined: there is a master
};
/// Updates what lies in `chunks`, each by the scalars of its index; what lies in none stays.
/// Source: arXiv:1711.05101 algorithm 2, decay first, as torch.optim.AdamW orders it.
/// Errors of these: ModelError where tensors are not as said, or chunks lie outside them.
void adamw_update(const AdamWState& state, const std::vector<Chunk>& chunks,
                  std::span<const AdamWScalars> scalars);

/// A master of f32 bits in two halves: `weight` (bf16) becomes the master rounded to nearest, ties
/// away from zero, and `low` (int16) the master's lower 16 bits. As integers the master's bits are
/// (weight << 16) + low, whatever the master is: a rounding up is a `low` below zero. Ties to even
/// would have some at +32768. A NaN keeps its upper half, made quiet, alone. All flat, contiguous.
void split_master(const at::Tensor& master, const at::Tensor& weight, const at::Tensor& low);

/// The f32 master that split_master has made these of.
at::Tensor join_master(const at::Tensor& weight, const at::Tensor& low);

/// The sum of squares of each chunk of a flat f32 tensor, in f64, added in a fixed order.
std::vector<double> sums_of_squares(const at::Tensor& values, const std::vector<Chunk>& chunks);

/// Whether no element is infinite or NaN.
bool all_finite(const at::Tensor& x);

namespace oracle {
/// In ATen's operators: what devices without a kernel of their own run, and what kernels are held
/// against.
void adamw_update(const AdamWState& state, const std::vector<Chunk>& chunks,
                  std::span<const AdamWScalars> scalars);
void split_master(const at::Tensor& master, const at::Tensor& weight, const at::Tensor& low);
at::Tensor join_master(const at::Tensor& weight, const at::Tensor& low);
std::vector<double> sums_of_squares(const at::Tensor& values, const std::vector<Chunk>& chunks);
bool all_finite(const at::Tensor& x);
}  // namespace oracle
}  // namespace danlu::ops
