// ops/fused_cpu.h: ops with hand-made forward and backward passes for f32, bf16 and f16 on CPUs.
// Shapes are checked by the caller (the public op of the same name); contracts are the public ones.
// Results do not depend on the number of threads. Internal to ops.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <initializer_list>

#include "ops/attention.h"
#include "ops/rotary.h"
#include "ops/row_kernels_cpu.h"

namespace danlu::ops::cpu {

inline Element element_of(const at::Tensor& x) {
  if (x.scalar_type() == at::kFloat) return Element::kF32;
  return x.scalar_type() == at::kBFloat16 ? Element::kBF16 : Element::kF16;
}

/// Whether a pass over these needs no graph: what an answer is made of, a token at a time, would
/// else spend a fifth of its time on nodes that nobody walks.
inline bool needs_no_graph(std::initializer_list<const at::Tensor*> inputs) {
  if (!at::GradMode::is_enabled()) return true;
  for (const at::Tensor* input : inputs)
    if (input->requires_grad()) return false;
  return true;
}

/// Keeps x and one f32 per row for backward.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight_D, double eps);
/// Keeps only the table.
at::Tensor rotary(const at::Tensor& x_NQD, const RotaryTable& table);
/// Keeps gate and up.
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);
/// Keeps q, k, v, the result and one f32 per query and head: probabilities are made again in
/// backward, a tile of queries at a time, and those of unseen keys never.
at::Tensor attention(const at::Tensor& q_NQD, const at::Tensor& k_MKD, const at::Tensor& v_MKD,
                     const Segments& segments, const AttentionOptions& options);

PartialAttention attention_part(const at::Tensor& q_NQD, const at::Tensor& k_MKD,
                                const at::Tensor& v_MKD, const Spans& spans,
                                const AttentionOptions& options);
AttentionGrads attention_part_backward(const at::Tensor& q_NQD, const at::Tensor& k_MKD,
                                       const at::Tensor& v_MKD, const Spans& spans,
                                       const AttentionOptions& options,
                                       const at::Tensor& out_grad_NQD, const at::Tensor& lse_QN,
                                       const at::Tensor& delta_QN);

struct ChunkLoss {
  double sum = 0;
  int64_t num_correct = 0;
};
/// Summed cross entropy of a chunk of logits (contiguous), which become grad_scale
/// times their gradient where `make_grad`.
ChunkLoss cross_entropy_chunk(const at::Tensor& logits_CV, const at::Tensor& targets_C,
                              double z_weight, double grad_scale, bool make_grad);

}  // namespace danlu::ops::cpu
