#include "ops/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>

#include "ops/aten/table.h"
#include "ops/head_groups.h"

namespace danlu::ops::aten {
namespace {

constexpr double kHidden = -std::numeric_limits<double>::infinity();

/// Keys and values of a span's heads in f32, [K, m, D], kept for the spans after it that have them
/// too.
class SpanKeys {
 public:
  SpanKeys(const at::Tensor& k_MKD, const at::Tensor& v_MKD) : k_MKD_(k_MKD), v_MKD_(v_MKD) {}
  void go_to(const Span& span) {
    if (k_KmD.defined() && first_ == span.k && k_KmD.size(1) == span.k_len) return;
    first_ = span.k;
    k_KmD = widened(k_MKD_.narrow(0, span.k, span.k_len));
    v_KmD = widened(v_MKD_.narrow(0, span.k, span.k_len));
  }
  at::Tensor k_KmD, v_KmD;

 private:
  static at::Tensor widened(const at::Tensor& x_mKD) {
    return x_mKD.transpose(0, 1).to(at::kFloat).contiguous();
  }
  const at::Tensor &k_MKD_, &v_MKD_;
  int64_t first_ = 0;
};

/// Some queries of a span, and the keys that one of them at least sees.
struct QueryBlock {
  int64_t q, q_len;  ///< in the tensor
  int64_t place;     ///< of the first query, counted from the span's first key
  int64_t k, k_len;  ///< counted from there too
};

template <typename Visit>
void for_each_block(const Span& span, int64_t heads, int64_t window, const Visit& visit) {
  const int64_t most =
      std::max<int64_t>(1, kWideNumbers / std::max<int64_t>(1, heads * span.k_len));
  for (int64_t at = 0; at < span.q_len; at += most) {
    const int64_t count = std::min(most, span.q_len - at), place = span.lead + at;
    int64_t begin = 0, end = span.k_len;
    if (span.causal) {
      end = std::min(end, place + count);
      if (window > 0) begin = std::max<int64_t>(0, place + 1 - window);
    }
    if (begin < end) visit(QueryBlock{span.q + at, count, place, begin, end - begin});
  }
}

/// [K, Q/K, n, m] of queries by group, which are scaled, and keys [K, m, D].
at::Tensor block_scores(const at::Tensor& q, const at::Tensor& k_KmD, const QueryBlock& block,
                        bool causal, const AttentionOptions& options) {
  const int64_t kv_heads = k_KmD.size(0), n = block.q_len, m = block.k_len;
  at::Tensor scores = at::bmm(q, k_KmD.transpose(1, 2)).view({kv_heads, -1, n, m});
  if (!causal) return scores;
  const int64_t last = block.k + m - 1;
  const bool windowed = options.window > 0 && block.place + n - block.k > options.window;
  if (last <= block.place && !windowed && !options.alibi_slopes_Q.defined()) return scores;
  const at::TensorOptions as_int = q.options().dtype(at::kLong);
  const at::Tensor distance_NM = at::arange(block.k, block.k + m, as_int).unsqueeze(0) -
                                 at::arange(block.place, block.place + n, as_int).unsqueeze(1);
  if (options.alibi_slopes_Q.defined()) {
    scores.add_(options.alibi_slopes_Q.to(scores.options()).view({kv_heads, -1, 1, 1}) *
                distance_NM);
  }
  at::Tensor hidden_NM = distance_NM > 0;
  if (windowed) hidden_NM = hidden_NM.logical_or_(distance_NM <= -options.window);
  return scores.masked_fill_(hidden_NM, kHidden);
}

at::Tensor scaled_queries(const at::Tensor& q_NQD, const QueryBlock& block, int64_t kv_heads,
                          double scale) {
  return by_group(q_NQD.narrow(0, block.q, block.q_len).to(at::kFloat) * scale, kv_heads);
}

/// Without the infinities of rows that see no key, whose weights are then 0.
at::Tensor known(const at::Tensor& lse) { return lse.masked_fill(lse.eq(kHidden), 0); }

}  // namespace

PartialAttention attention(const at::Tensor& q_NQD, const at::Tensor& k_MKD,
                           const at::Tensor& v_MKD, const Spans& spans,
                           const AttentionOptions& options, at::ScalarType result) {
  const int64_t queries = q_NQD.size(0), heads = q_NQD.size(1), kv_heads = k_MKD.size(1);
  PartialAttention part{at::zeros({queries, heads, v_MKD.size(2)}, q_NQD.options().dtype(result)),
                        at::full({heads, queries}, kHidden, q_NQD.options().dtype(at::kFloat))};
  SpanKeys keys(k_MKD, v_MKD);
  for (const Span& span : spans) {
    keys.go_to(span);
    for_each_block(span, heads, options.window, [&](const QueryBlock& block) {
      const at::Tensor q = scaled_queries(q_NQD, block, kv_heads, options.scale);
      at::Tensor weights =
          block_scores(q, keys.k_KmD.narrow(1, block.k, block.k_len), block, span.causal, options);
      const at::Tensor lse = at::logsumexp(weights, -1, /*keepdim=*/true);
      weights.sub_(known(lse)).exp_();
      const at::Tensor out = at::bmm(weights.view({kv_heads, -1, block.k_len}),
                                     keys.v_KmD.narrow(1, block.k, block.k_len));
      part.out_NQD.narrow(0, block.q, block.q_len).copy_(by_row(out, block.q_len));
      part.lse_QN.narrow(1, block.q, block.q_len).copy_(lse.view({heads, block.q_len}));
    });
  }
  return part;
}

AttentionGrads attention_backward(const at::Tensor& q_NQD, const at::Tensor& k_MKD,
                                  const at::Tensor& v_MKD, const Spans& spans,
                                  const AttentionOptions& options, const at::Tensor& out_grad_NQD,
                                  const at::Tensor& lse_QN, const at::Tensor& delta_QN) {
  const int64_t heads = q_NQD.size(1), kv_heads = k_MKD.size(1);
  const at::TensorOptions wide = q_NQD.options().dtype(at::kFloat);
  AttentionGrads grads{at::zeros(q_NQD.sizes(), wide), at::zeros(k_MKD.sizes(), wide),
                       at::zeros(v_MKD.sizes(), wide)};
  SpanKeys keys(k_MKD, v_MKD);
  for (const Span& span : spans) {
    keys.go_to(span);
    for_each_block(span, heads, options.window, [&](const QueryBlock& block) {
      const at::Tensor q = scaled_queries(q_NQD, block, kv_heads, options.scale);
      const at::Tensor k = keys.k_KmD.narrow(1, block.k, block.k_len),
                       v = keys.v_KmD.narrow(1, block.k, block.k_len);
      const at::Tensor out_grad =
          by_group(out_grad_NQD.narrow(0, block.q, block.q_len).to(at::kFloat), kv_heads);
      const auto of_rows = [&](const at::Tensor& x_QN) {
        return x_QN.narrow(1, block.q, block.q_len).reshape({kv_heads, -1, block.q_len, 1});
      };
      at::Tensor weights = block_scores(q, k, block, span.causal, options);
      weights.sub_(known(of_rows(lse_QN))).exp_();
      at::Tensor d_scores = at::bmm(out_grad, v.transpose(1, 2)).view(weights.sizes());
      d_scores.sub_(of_rows(delta_QN)).mul_(weights);
      const at::Tensor flat = d_scores.view({kv_heads, -1, block.k_len}),
                       weights_t = weights.view({kv_heads, -1, block.k_len}).transpose(1, 2);
      const int64_t first = span.k + block.k;
      grads.q_NQD.narrow(0, block.q, block.q_len)
          .copy_(by_row(at::bmm(flat, k).mul_(options.scale), block.q_len));
      grads.k_MKD.narrow(0, first, block.k_len)
          .add_(at::bmm(flat.transpose(1, 2), q).transpose(0, 1));
      grads.v_MKD.narrow(0, first, block.k_len).add_(at::bmm(weights_t, out_grad).transpose(0, 1));
    });
  }
  return grads;
}

}  // namespace danlu::ops::aten
