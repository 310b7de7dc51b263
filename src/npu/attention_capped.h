// npu/attention_capped.h: attention whose scores have a cap, which CANN's fused operators do not
// know: score by score, a block of queries at a time.
#pragma once
#include "ops/attention.h"

namespace danlu::npu {

/// As ops/backend.h's entries. In f32 throughout.
ops::PartialAttention capped_attention(const at::Tensor& q_NQD, const at::Tensor& k_MKD,
                                       const at::Tensor& v_MKD, const ops::Spans& spans,
                                       const ops::AttentionOptions& options, at::ScalarType result);
ops::AttentionGrads capped_attention_backward(const at::Tensor& q_NQD, const at::Tensor& k_MKD,
                                              const at::Tensor& v_MKD, const ops::Spans& spans,
                                              const ops::AttentionOptions& options,
                                              const at::Tensor& out_grad_NQD,
                                              const at::Tensor& lse_QN, const at::Tensor& delta_QN);

}  // namespace danlu::npu
