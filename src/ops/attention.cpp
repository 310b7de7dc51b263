#include "ops/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/softmax.h>

#include <limits>

#include "device/dtype.h"
#include "ops/check.h"
#include "ops/fused_cpu.h"
#include "ops/kernels.h"
#include "ops/linear.h"

namespace danlu::ops {
namespace attention_detail {

void check(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Segments& segments,
           const AttentionOptions& options) {
  require(q.dim() == 3 && k.dim() == 3 && k.sizes() == v.sizes() && q.size(2) == k.size(2) &&
              k.size(1) > 0 && q.size(1) % k.size(1) == 0,
          "attention", "q ", q.sizes(), ", k ", k.sizes(), ", v ", v.sizes(),
          " must be [N, Q, D], [M, K, D], [M, K, D] with K dividing Q");
  require(!options.alibi_slopes_Q.defined() || options.alibi_slopes_Q.numel() == q.size(1),
          "attention", "there must be one ALiBi slope for each of the ", q.size(1), " heads");
  const auto covers = [](const std::vector<int64_t>& starts, int64_t size) {
    if (starts.empty() || starts.front() != 0 || starts.back() != size) return false;
    return std::is_sorted(starts.begin(), starts.end());
  };
  require(segments.q_starts.size() == segments.k_starts.size() &&
              covers(segments.q_starts, q.size(0)) && covers(segments.k_starts, k.size(0)),
          "attention", "segments must cover the ", q.size(0), " queries and ", k.size(0),
          " keys from 0 on, in order");
  for (size_t s = 1; s < segments.q_starts.size(); ++s) {
    const int64_t n = segments.q_starts[s] - segments.q_starts[s - 1],
                  m = segments.k_starts[s] - segments.k_starts[s - 1];
    require(n <= m, "attention", "a segment has ", n, " queries but only ", m, " keys");
  }
}

/// The fused kernel first copies the keys, which a few queries against a long cache do not repay.
bool takes_fused(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                 const Segments& segments) {
  return fused_on_cpu(q) && q.scalar_type() == k.scalar_type() &&
         q.scalar_type() == v.scalar_type() &&
         (q.size(0) >= 8 * segments.count() || q.size(0) == k.size(0));
}

std::vector<int64_t> lengths(const std::vector<int64_t>& starts) {
  std::vector<int64_t> result;
  for (size_t i = 1; i < starts.size(); ++i) result.push_back(starts[i] - starts[i - 1]);
  return result;
}

/// Index differences key - query [n, m], the last query standing at the last key.
at::Tensor distances(int64_t n, int64_t m, const at::Device& device) {
  const at::TensorOptions as_int = at::TensorOptions(device).dtype(at::kLong);
  return at::arange(m, as_int).unsqueeze(0) - at::arange(m - n, m, as_int).unsqueeze(1);
}

/// One segment. Query heads of a group lie below each other, so that K/V are never repeated.
at::Tensor one_segment(const at::Tensor& q_NQD, const at::Tensor& k_MKD, const at::Tensor& v_MKD,
                       const AttentionOptions& options) {
  const int64_t n = q_NQD.size(0), m = k_MKD.size(0), kv_heads = k_MKD.size(1),
                head_dim = q_NQD.size(2);
  const int64_t group = q_NQD.size(1) / kv_heads;
  const at::Tensor q = q_NQD.reshape({n, kv_heads, group, head_dim})
                           .permute({1, 2, 0, 3})
                           .reshape({kv_heads, group * n, head_dim});
  at::Tensor scores = batched_product(q, k_MKD.permute({1, 2, 0}))
                          .to(device::wide_type(q.scalar_type()))
                          .mul(options.scale)
                          .view({kv_heads, group, n, m});
  const bool windowed = options.window > 0 && options.window < m;
  if (n > 1 || windowed || options.alibi_slopes_Q.defined()) {
    const at::Tensor distance_NM = distances(n, m, q.device());
    if (options.alibi_slopes_Q.defined()) {
      const at::Tensor slopes =
          options.alibi_slopes_Q.to(scores.options()).view({kv_heads, group, 1, 1});
      scores = scores + slopes * distance_NM;
    }
    at::Tensor hidden_NM = distance_NM > 0;
    if (windowed) hidden_NM = hidden_NM.logical_or(distance_NM <= -options.window);
    scores = scores.masked_fill(hidden_NM, -std::numeric_limits<double>::infinity());
  }
  const at::Tensor weights =
      at::softmax(scores, -1).to(q.scalar_type()).view({kv_heads, group * n, m});
  return batched_product(weights, v_MKD.transpose(0, 1))
      .view({kv_heads, group, n, head_dim})
      .permute({2, 0, 1, 3})
      .reshape({n, kv_heads * group, head_dim});
}

}  // namespace attention_detail

at::Tensor attention(const at::Tensor& q_NQD, const at::Tensor& k_MKD, const at::Tensor& v_MKD,
                     const Segments& segments, const AttentionOptions& options) {
  attention_detail::check(q_NQD, k_MKD, v_MKD, segments, options);
  if (attention_detail::takes_fused(q_NQD, k_MKD, v_MKD, segments))
    return cpu::attention(q_NQD, k_MKD, v_MKD, segments, options);
  return oracle::attention(q_NQD, k_MKD, v_MKD, segments, options);
}

at::Tensor oracle::attention(const at::Tensor& q_NQD, const at::Tensor& k_MKD,
                             const at::Tensor& v_MKD, const Segments& segments,
                             const AttentionOptions& options) {
  using namespace attention_detail;
  check(q_NQD, k_MKD, v_MKD, segments, options);
  if (segments.count() == 1) return one_segment(q_NQD, k_MKD, v_MKD, options);
  // split, not narrow: its backward is one concatenation instead of a padded copy per segment.
  const std::vector<at::Tensor> q = q_NQD.split_with_sizes(lengths(segments.q_starts));
  const std::vector<at::Tensor> k = k_MKD.split_with_sizes(lengths(segments.k_starts));
  const std::vector<at::Tensor> v = v_MKD.split_with_sizes(lengths(segments.k_starts));
  std::vector<at::Tensor> outputs;
  for (size_t s = 0; s < q.size(); ++s) outputs.push_back(one_segment(q[s], k[s], v[s], options));
  return at::cat(outputs, 0);
}

}  // namespace danlu::ops
