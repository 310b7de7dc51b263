// ops/attention.h: softmax attention over packed sequences, causal or not.
#pragma once
#include <ATen/core/Tensor.h>

#include "ops/segments.h"

namespace danlu::ops {

/// A window and ALiBi count the keys before a query, so both need causal segments. A picture with
/// window attention (Qwen2.5-VL) has a segment for each window instead.
struct AttentionOptions {
  double scale = 1.0;  ///< on q k^T, before bias and softmax; often 1/sqrt(D)
  int64_t window = 0;  ///< a query sees at most this many keys, its own included; 0: no limit
  at::Tensor alibi_slopes_Q;  ///< f32 [Q], or undefined; adds slope * (key index - query index)
  double softcap = 0;         ///< scores become cap * tanh(score / cap); 0: they stay
  /// A query sees the keys of its own stretch of this many indices alone, counted from the first
  /// key of the segment; 0: no stretches.
  int64_t chunk = 0;
};

/// Query head h uses key/value head h / (Q/K). A query sees the keys of its own segment, and in a
/// causal segment no later ones. Indices count within the segment, and the last query stands at the
/// last key.
///
/// Shapes  q_NQD [N, Q, D]; k_MKD [M, K, D]; v_MKD [M, K, Dv]; K divides Q; result [N, Q, Dv]. Dv
///         differs from D where values are narrower or wider than keys (DeepSeek-V2's latent
///         attention).
/// Dtypes  one dtype for all. Softmax is in f32 (f64 for f64). The composite then rounds its
///         weights to the dtype, as Hugging Face does. The fused CPU kernel rounds them only where
///         it multiplies bf16 directly (base/cpu_class.h). With a softcap the composite's pieces
///         run and round nothing between.
/// Grad    through q, k, v.
/// Errors  ModelError for wrong shapes or dtypes and for segments that do not cover the tensors,
///         and as require_masks.
at::Tensor attention(const at::Tensor& q_NQD, const at::Tensor& k_MKD, const at::Tensor& v_MKD,
                     const Segments& segments, const AttentionOptions& options);

/// `segments`, which are causal, cut into stretches of `chunk` indices, counted from the first key
/// of each: for options with a chunk. Keys before the first query's stretch have a segment without
/// queries.
Segments in_chunks(const Segments& segments, int64_t chunk);

/// Refuses a window, a chunk or ALiBi where a segment is not causal. Errors: ModelError.
void require_masks(const Segments& segments, const AttentionOptions& options);

/// Attention over some of the keys that queries see.
struct PartialAttention {
  at::Tensor out_NQD;  ///< [N, Q, Dv], f32 (f64 for f64); 0 for a query that sees none of the keys
  at::Tensor lse_QN;   ///< the same dtype: log of the sum of exponentials; -inf for such a query
};
/// Attention over `spans` alone; merge() joins the results over different keys. Shapes and dtypes
/// as attention(). Without gradient. Errors: ModelError for shapes and dtypes that do not fit, for
/// spans outside the tensors, for spans whose keys overlap, unless they follow each other and have
/// the same keys, and where a window or ALiBi meets a span that is not causal. Spans are cut by
/// chunks already (in_chunks): an option is not looked at.
PartialAttention attention_part(const at::Tensor& q_NQD, const at::Tensor& k_MKD,
                                const at::Tensor& v_MKD, const Spans& spans,
                                const AttentionOptions& options);
/// Makes `into` the attention over the keys of both (FlashAttention-2, arXiv:2307.08691 §2.3).
void merge(PartialAttention& into, const PartialAttention& more);

/// The sum over Dv of out_grad · out of the whole result, which the backward of every part needs:
/// f32 [Q, N] (f64 for f64). Without gradient.
at::Tensor attention_delta(const at::Tensor& out_grad_NQD, const at::Tensor& out_NQD);

struct AttentionGrads {
  at::Tensor q_NQD, k_MKD, v_MKD;  ///< f32 (f64 for f64)
};
/// What one part adds to the gradients of q, k and v. out_grad_NQD is the gradient of the whole
/// result, lse_QN the merged one of all parts, delta_QN as attention_delta gives it; all are f32
/// (f64 for f64). A kernel that multiplies bf16 directly rounds out_grad to bf16 for its products.
/// Errors: as attention_part.
AttentionGrads attention_part_backward(const at::Tensor& q_NQD, const at::Tensor& k_MKD,
                                       const at::Tensor& v_MKD, const Spans& spans,
                                       const AttentionOptions& options,
                                       const at::Tensor& out_grad_NQD, const at::Tensor& lse_QN,
                                       const at::Tensor& delta_QN);

/// The CPU's kernel pads the width of a head to a multiple of this many columns if it multiplies in
/// `type`. Plans of memory need it.
int64_t packed_columns(at::ScalarType type);

/// The composites of ATen's operators, against which kernels are tested.
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
