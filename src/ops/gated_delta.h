// ops/gated_delta.h: linear attention by the gated delta rule (arXiv:2412.06464) and the
// convolution before it, over packed sequences.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace danlu::ops {

/// What a layer of linear attention keeps of each of S sequences for the tokens that follow.
/// Undefined: the sequences begin.
struct DeltaState {
  at::Tensor rows_SKC;  ///< the last rows that the convolution has seen, one less than its kernel
  at::Tensor memory_SHKV;  ///< f32 (f64 of f64): of each value head a matrix from keys to values
};
/// Gives the state after a pass of that before it.
using AdvanceState = std::function<DeltaState(const DeltaState& before)>;

struct Convolved {
  at::Tensor y_NC;
  at::Tensor rows_SKC;  ///< for the tokens that follow; only if `before` is given
};
/// y[t, c] = silu(sum_j weight[c, j] x[t - K + 1 + j, c]), where rows before a sequence's first are
/// those of `before`, or zeros.
///
/// Shapes  x_NC [N, C]; weight_CK [C, K]; starts: S + 1 ascending borders from 0 to N; before
///         [S, K - 1, C].
/// Dtypes  x's is the result's; the sum and silu are in f32 (f64 for f64), rounded once.
/// Grad    through x and weight, where `before` is undefined. Both alone are kept.
/// Errors  ModelError for shapes that do not fit.
Convolved causal_convolution(const at::Tensor& x_NC, const at::Tensor& weight_CK,
                             const std::vector<int64_t>& starts, const at::Tensor& before_SKC = {});

struct DeltaResult {
  at::Tensor out_NHV;
  at::Tensor memory_SHKV;  ///< after the last tokens; undefined where a graph is made
};
/// Reads a memory by each value head h, with key head g = h / (H / G), q and k divided by sqrt(sum
/// of squares + 1e-6) and q by sqrt(K) too; M begins as `memory`, or as 0:
///   M = exp(decay) M;  M = M + k (step (v - M^T k))^T;  out = M^T q.
///
/// Shapes  q_NGK, k_NGK [N, G, K]; v_NHV [N, H, V]; decay_NH, step_NH [N, H]; starts as above;
///         memory [S, H, K, V]; result [N, H, V].
/// Dtypes  q, k and v of one, which is the result's; decay, step and memory f32 (f64 for f64), in
///         which all is computed.
/// Units   decay is a logarithm and not above 0.
/// Grad    through q, k, v, decay and step, where `memory` is undefined. They alone are kept.
/// Errors  ModelError for shapes that do not fit.
DeltaResult gated_delta(const at::Tensor& q_NGK, const at::Tensor& k_NGK, const at::Tensor& v_NHV,
                        const at::Tensor& decay_NH, const at::Tensor& step_NH,
                        const std::vector<int64_t>& starts, const at::Tensor& memory_SHKV = {});

namespace oracle {
/// In ATen's operators, which have the gradient: the products of a run of tokens at a time, as
/// arXiv:2412.06464 section 3.3 has it.
DeltaResult gated_delta(const at::Tensor& q_NGK, const at::Tensor& k_NGK, const at::Tensor& v_NHV,
                        const at::Tensor& decay_NH, const at::Tensor& step_NH,
                        const std::vector<int64_t>& starts, const at::Tensor& memory_SHKV = {});
}  // namespace oracle
}  // namespace danlu::ops
