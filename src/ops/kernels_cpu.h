// ops/kernels_cpu.h: entries of the CPU's table (ops/backend.h, which has their contracts), for
// f32, bf16 and f16. Results do not depend on the number of threads. Internal to ops.
#pragma once
#include <ATen/core/Tensor.h>

#include "ops/backend.h"
#include "ops/check.h"
#include "ops/row_kernels_cpu.h"

namespace danlu::ops::cpu {

/// Whether a tensor has a type that kernels know.
inline bool is_element(const at::Tensor& x) {
  const at::ScalarType type = x.scalar_type();
  return type == at::kFloat || type == at::kBFloat16 || type == at::kHalf;
}
/// Errors: ModelError for other types.
inline Element element_of(const at::Tensor& x) {
  require(is_element(x), "kernels", "a tensor of ", x.scalar_type());
  if (x.scalar_type() == at::kFloat) return Element::kF32;
  return x.scalar_type() == at::kBFloat16 ? Element::kBF16 : Element::kF16;
}

NormResult rms_norm(const at::Tensor& x, const at::Tensor& weight_D, double eps);
NormGrads rms_norm_backward(const at::Tensor& x, const at::Tensor& weight_D, const at::Tensor& rstd,
                            const at::Tensor& dy, bool x_grad, bool weight_grad);
at::Tensor column_sums(const at::Tensor& x_NO);
RotaryTable rotary_table(const at::Tensor& positions_N, const at::Tensor& inv_freq,
                         double attention_factor);
at::Tensor rotary(const at::Tensor& x_NQD, const RotaryTable& table, bool inverse);
at::Tensor add(const at::Tensor& a, const at::Tensor& b);
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);
SwigluGrads swiglu_backward(const at::Tensor& gate, const at::Tensor& up, const at::Tensor& dy);
/// Keys and values are packed in blocks first. Backward makes probabilities again, a tile of
/// queries at a time, and those of unseen keys never.
PartialAttention attention(const at::Tensor& q_NQD, const at::Tensor& k_MKD,
                           const at::Tensor& v_MKD, const Spans& spans,
                           const AttentionOptions& options, at::ScalarType result);
AttentionGrads attention_backward(const at::Tensor& q_NQD, const at::Tensor& k_MKD,
                                  const at::Tensor& v_MKD, const Spans& spans,
                                  const AttentionOptions& options, const at::Tensor& out_grad_NQD,
                                  const at::Tensor& lse_QN, const at::Tensor& delta_QN);
at::Tensor attention_over_pages(const at::Tensor& q_NQD, const Pages& pages,
                                const CachedSequences& sequences, int64_t layer,
                                const AttentionOptions& options);
void store_in_pages(const at::Tensor& k_NKD, const at::Tensor& v_NKD, const Pages& pages,
                    const CachedSequences& sequences, int64_t layer);
/// Token by token, in f32; backward makes the memories again, a run of tokens at a time.
DeltaResult gated_delta(const DeltaInputs& inputs, const std::vector<int64_t>& starts,
                        const at::Tensor& memory_SHKV);
DeltaInputs gated_delta_backward(const DeltaInputs& inputs, const std::vector<int64_t>& starts,
                                 const at::Tensor& out_grad_NHV);
void cross_entropy(const CrossEntropyChunk& chunk);
/// Takes f64 too.
at::Tensor dropout(const at::Tensor& x_NI, double p, const at::Tensor& keys_N, uint64_t salt,
                   int64_t first_column);
void add_to(const at::Tensor& sum, const at::Tensor& x);
void adamw_update(const AdamWState& state, const std::vector<Chunk>& chunks,
                  std::span<const AdamWScalars> scalars);
void split_master(const at::Tensor& master, const at::Tensor& weight, const at::Tensor& low);
at::Tensor join_master(const at::Tensor& weight, const at::Tensor& low);
std::vector<double> sums_of_squares(const at::Tensor& values, const std::vector<Chunk>& chunks);
bool all_finite(const at::Tensor& x);

}  // namespace danlu::ops::cpu
