// ops/attention.h: softmax attention over packed sequences, causal or not.
#pragma once
#include <ATen/core/Tensor.h>

#include "ops/segments.h"

namespace danlu::ops {

/// A window and ALiBi count in keys before the query: both are for causal segments alone. A picture
/// that is attended to in windows has a segment for each of them (Qwen2.5-VL).
struct AttentionOptions {
  double scale = 1.0;  ///< on q k^T, before bias and softmax; 1/sqrt(D) in every model here
  int64_t window = 0;  ///< a query sees at most this many keys, itself included; 0: all before it
  at::Tensor alibi_slopes_Q;  ///< f32 [Q], or undefined; adds slope * (key index - query index)
};

/// Queries of head h use key/value head h / (Q/K). No key of another segment is seen, and in a
/// causal one no later key; indices count within the segment, the last query at the last key.
///
/// Shapes  q_NQD [N, Q, D]; k_MKD [M, K, D]; v_MKD [M, K, Dv]; K divides Q; result [N, Q, Dv]. Dv
/// is
///         D but where values are narrower or wider than keys (DeepSeek-V2's latent attention).
/// Dtypes  one dtype; scores are softmaxed in f32 (f64 for f64). The composite rounds the weights
///         to the dtype as Hugging Face does, the fused CPU kernel where it multiplies bf16 as it
///         is (base/cpu_class.h), and else keeps them wide.
/// Grad    through q, k, v.
/// Errors  ModelError naming shapes, dtypes, segments that do not cover them, or as require_masks.
at::Tensor attention(const at::Tensor& q_NQD, const at::Tensor& k_MKD, const at::Tensor& v_MKD,
                     const Segments& segments, const AttentionOptions& options);

/// Errors: ModelError where a window or ALiBi meets a segment that is not causal.
void require_masks(const Segments& segments, const AttentionOptions& options);

/// What queries make of some of the keys that they see.
struct PartialAttention {
  at::Tensor out_NQD;  ///< [N, Q, Dv], f32 (f64 of f64); 0 of a query that sees none
  at::Tensor lse_QN;   ///< the same type: log of the sum of exponentials; -inf of such a query
};
/// Attention over `spans` alone; parts over different keys are merged. Shapes and dtypes as
/// attention(). Without gradient. Errors: ModelError for shapes and dtypes that do not fit, for
/// spans outside the tensors, for two whose keys overlap and are not the same ones in succession,
/// and where a window or ALiBi meets a span that is not causal.
PartialAttention attention_part(const at::Tensor& q_NQD, const at::Tensor& k_MKD,
                                const at::Tensor& v_MKD, const Spans& spans,
                                const AttentionOptions& options);
/// `into` becomes attention over the keys of both (FlashAttention-2's rule, arXiv:2307.08691 §2.3).
void merge(PartialAttention& into, const PartialAttention& more);

/// Sum over Dv of out_grad · out, which a backward over parts needs of the whole result: f32 [Q, N]
/// (f64 of f64). Without gradient.
at::Tensor attention_delta(const at::Tensor& out_grad_NQD, const at::Tensor& out_NQD);

struct AttentionGrads {
  at::Tensor q_NQD, k_MKD, v_MKD;  ///< f32 (f64 of f64)
};
/// Of the same part: out_grad_NQD is the gradient of the whole result, lse_QN that of all parts,
/// delta_QN the sum over Dv of out_grad · result; all f32 (f64 of f64). Where bf16 is multiplied as
/// it is, out_grad is rounded to it for its products. Errors: as attention_part.
AttentionGrads attention_part_backward(const at::Tensor& q_NQD, const at::Tensor& k_MKD,
                                       const at::Tensor& v_MKD, const Spans& spans,
                                       const AttentionOptions& options,
                                       const at::Tensor& out_grad_NQD, const at::Tensor& lse_QN,
                                       const at::Tensor& delta_QN);

/// Columns of the CPU's packed values: what a head's width is padded to, a multiple of them, where
/// it is multiplied in this type.
int64_t packed_columns(at::ScalarType type);

namespace oracle {
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
}  // namespace oracle
}  // namespace danlu::ops
