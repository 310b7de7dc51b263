#include "ops/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "device/dtype.h"
#include "ops/autograd.h"
#include "ops/backend.h"
#include "ops/check.h"
#include "ops/head_groups.h"
#include "ops/linear.h"

namespace danlu::ops {
namespace {

void check_tensors(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                   const AttentionOptions& options) {
  require(q.dim() == 3 && k.dim() == 3 && v.dim() == 3 && k.size(0) == v.size(0) &&
              k.size(1) == v.size(1) && q.size(2) == k.size(2) && k.size(1) > 0 && q.size(1) > 0 &&
              q.size(1) % k.size(1) == 0,
          "attention", "q ", q.sizes(), ", k ", k.sizes(), ", v ", v.sizes(),
          " must be [N, Q, D], [M, K, D], [M, K, Dv] with K dividing Q");
  require(q.scalar_type() == k.scalar_type() && q.scalar_type() == v.scalar_type(), "attention",
          "q ", q.scalar_type(), ", k ", k.scalar_type(), ", v ", v.scalar_type(),
          " must be of one dtype");
  require(options.window >= 0, "attention", "a window of ", options.window, " keys");
  require(!options.alibi_slopes_Q.defined() || options.alibi_slopes_Q.numel() == q.size(1),
          "attention", "there must be one ALiBi slope for each of the ", q.size(1), " heads");
  require(options.softcap == 0 || !options.alibi_slopes_Q.defined(), "attention",
          "a cap on scores and ALiBi together");
}

bool needs_causality(const AttentionOptions& options) {
  return options.window > 0 || options.chunk > 0 || options.alibi_slopes_Q.defined();
}
void require_mask(bool causal, const AttentionOptions& options) {
  require(causal || !needs_causality(options), "attention", "a window of ", options.window, " keys",
          options.alibi_slopes_Q.defined() ? " and ALiBi" : "",
          " where queries see later keys too: both are for causal segments");
}

void check_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const Segments& segments, const AttentionOptions& options) {
  check_tensors(q, k, v, options);
  const auto covers = [](const std::vector<int64_t>& starts, int64_t size) {
    if (starts.empty() || starts.front() != 0 || starts.back() != size) return false;
    return std::is_sorted(starts.begin(), starts.end());
  };
  require(segments.q_starts.size() == segments.k_starts.size() &&
              covers(segments.q_starts, q.size(0)) && covers(segments.k_starts, k.size(0)),
          "attention", "segments must cover the ", q.size(0), " queries and ", k.size(0),
          " keys from 0 on, in order");
  require_masks(segments, options);
  for (size_t s = 1; s < segments.q_starts.size(); ++s) {
    const int64_t n = segments.q_starts[s] - segments.q_starts[s - 1],
                  m = segments.k_starts[s] - segments.k_starts[s - 1];
    require(segments.is_causal(s - 1) ? n <= m : n == 0 || m > 0, "attention", "a segment has ", n,
            " queries but only ", m, " keys");
  }
}

/// The table that attends to such tensors, or null. Few kernels know a cap.
const Backend* table_for(const at::Tensor& q, const AttentionOptions& options) {
  const Backend* const table = fused_for(Work::kRows, q);
  const bool takes = table && table->attention && (options.softcap == 0 || table->caps_scores);
  return takes ? table : nullptr;
}

/// The same where the cost of a kernel is repaid.
const Backend* table_for(const at::Tensor& q, const at::Tensor& k, const Segments& segments,
                         const AttentionOptions& options) {
  const Backend* const table = table_for(q, options);
  if (!table) return nullptr;
  // A device that lacks parts has no composite to be left to.
  const bool takes = q.size(0) >= table->fewest_queries * segments.count() ||
                     q.size(0) == k.size(0) || table->lacks;
  return takes ? table : nullptr;
}

/// The result is of q's type.
PartialAttention seen_in(const at::Tensor& q_NQD, const at::Tensor& k_MKD, const at::Tensor& v_MKD,
                         const Spans& spans, const AttentionOptions& options) {
  const at::ScalarType type = q_NQD.scalar_type();
  if (const Backend* const table = table_for(q_NQD, options))
    return table->attention(q_NQD, k_MKD, v_MKD, spans, options, type);
  const PartialAttention part = oracle::attention_part(q_NQD, k_MKD, v_MKD, spans, options);
  return {part.out_NQD.to(type), part.lse_QN};
}

/// Keeps q, k, v, the result and one f32 per query and head.
class OwnAttention : public torch::autograd::Function<OwnAttention> {
 public:
  using List = torch::autograd::variable_list;
  using Meeting = std::tuple<Spans, AttentionOptions>;
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& q_NQD,
                            const at::Tensor& k_MKD, const at::Tensor& v_MKD,
                            const Meeting& meeting) {
    const auto& [spans, options] = meeting;
    const auto [result, lse_QN] = seen_in(q_NQD, k_MKD, v_MKD, spans, options);
    ctx->save_for_backward({q_NQD, k_MKD, v_MKD, result, lse_QN});
    ctx->saved_data["meeting"] = held(meeting);
    return result;
  }

  static List backward(torch::autograd::AutogradContext* ctx, const List& grads) {
    const List saved = ctx->get_saved_variables();
    const auto& [spans, options] = held_in<Meeting>(ctx->saved_data["meeting"]);
    const Backend* const table = table_for(saved[0], options);
    const auto found_by = [&]() -> AttentionGrads {
      if (table && table->whole_attention_backward) {
        return table->whole_attention_backward(saved[0], saved[1], saved[2], spans, options,
                                               grads[0], saved[3], saved[4]);
      }
      const at::Tensor delta_QN = ops::attention_delta(grads[0], saved[3]);
      return table ? table->attention_backward(saved[0], saved[1], saved[2], spans, options,
                                               grads[0], saved[4], delta_QN)
                   : oracle::attention_part_backward(saved[0], saved[1], saved[2], spans, options,
                                                     grads[0].to(saved[4].scalar_type()), saved[4],
                                                     delta_QN);
    };
    const AttentionGrads found = found_by();
    const at::ScalarType dtype = saved[0].scalar_type();
    return {found.q_NQD.to(dtype), found.k_MKD.to(dtype), found.v_MKD.to(dtype), {}};
  }
};

std::vector<int64_t> lengths(const std::vector<int64_t>& starts) {
  std::vector<int64_t> result;
  for (size_t i = 1; i < starts.size(); ++i) result.push_back(starts[i] - starts[i - 1]);
  return result;
}

/// Index differences key - query [n, m] of a span.
at::Tensor distances(const Span& span, const at::Device& device) {
  const at::TensorOptions as_int = at::TensorOptions(device).dtype(at::kLong);
  return at::arange(span.k_len, as_int).unsqueeze(0) -
         at::arange(span.lead, span.lead + span.q_len, as_int).unsqueeze(1);
}

/// Scores [K, Q/K, n, m] of a span's queries (by group) and keys, wide; -inf where one is not seen.
at::Tensor scores_of(const at::Tensor& q, const at::Tensor& k_MKD, const Span& span,
                     const AttentionOptions& options) {
  const int64_t n = span.q_len, m = span.k_len, kv_heads = k_MKD.size(1), group = q.size(1) / n;
  at::Tensor scores = batched_product(q, k_MKD.permute({1, 2, 0}))
                          .to(device::wide_type(q.scalar_type()))
                          .mul(options.scale)
                          .view({kv_heads, group, n, m});
  if (options.softcap > 0) scores = at::tanh(scores / options.softcap) * options.softcap;
  if (!span.causal) return scores;
  const bool windowed = options.window > 0 && span.lead + n > options.window;
  if (span.lead >= m - 1 && !windowed && !options.alibi_slopes_Q.defined()) return scores;
  const at::Tensor distance_NM = distances(span, q.device());
  if (options.alibi_slopes_Q.defined()) {
    const at::Tensor slopes =
        options.alibi_slopes_Q.to(scores.options()).view({kv_heads, group, 1, 1});
    scores = scores + slopes * distance_NM;
  }
  at::Tensor hidden_NM = distance_NM > 0;
  if (windowed) hidden_NM = hidden_NM.logical_or(distance_NM <= -options.window);
  return scores.masked_fill(hidden_NM, -std::numeric_limits<double>::infinity());
}

/// All keys and queries are the span's.
at::Tensor one_segment(const at::Tensor& q_NQD, const at::Tensor& k_MKD, const at::Tensor& v_MKD,
                       bool causal, const AttentionOptions& options) {
  const int64_t n = q_NQD.size(0), m = k_MKD.size(0), kv_heads = k_MKD.size(1);
  if (n == 0) return q_NQD.sum(2, /*keepdim=*/true).expand({0, q_NQD.size(1), v_MKD.size(2)});
  const at::Tensor q = by_group(q_NQD, kv_heads);
  const at::Tensor scores = scores_of(q, k_MKD, {0, n, 0, m, m - n, causal}, options);
  const at::Tensor weights = at::softmax(scores, -1).to(q.scalar_type()).view({kv_heads, -1, m});
  return by_row(batched_product(weights, v_MKD.transpose(0, 1)), n);
}

using Stretches = std::vector<std::pair<int64_t, int64_t>>;  // first, count

void require_apart(Stretches stretches, const char* what, const char* rule) {
  std::sort(stretches.begin(), stretches.end());
  for (size_t i = 1; i < stretches.size(); ++i) {
    const auto& [before, count] = stretches[i - 1];
    const auto& [first, more] = stretches[i];
    require(before + count <= first, "attention", what, " ", first, " + ", more, " and ", before,
            " + ", count, " overlap: ", rule);
  }
}

void check_part(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Spans& spans,
                const AttentionOptions& options) {
  check_tensors(q, k, v, options);
  for (const Span& span : spans) {
    require(span.q >= 0 && span.q_len > 0 && span.q + span.q_len <= q.size(0) && span.k >= 0 &&
                span.k_len > 0 && span.k + span.k_len <= k.size(0),
            "attention", "a span of queries ", span.q, " + ", span.q_len, " and keys ", span.k,
            " + ", span.k_len, " lies outside the ", q.size(0), " queries and ", k.size(0),
            " keys");
    require_mask(span.causal, options);
  }
  // Each set of keys gets its gradients from one thread, each query its result.
  Stretches keys, queries;
  for (const Span& span : spans) {
    queries.push_back({span.q, span.q_len});
    if (keys.empty() || keys.back() != std::pair(span.k, span.k_len))
      keys.push_back({span.k, span.k_len});
  }
  require_apart(queries, "queries", "a query must be in one span at most");
  require_apart(keys, "keys", "spans must have the same keys and follow each other, or share none");
}

void check_gradients(const at::Tensor& q, const at::Tensor& v, const at::Tensor& out_grad,
                     const at::Tensor& lse_QN, const at::Tensor& delta_QN) {
  const at::ScalarType wide = device::wide_type(q.scalar_type());
  const auto is_of_rows = [&](const at::Tensor& x_QN) {
    return x_QN.dim() == 2 && x_QN.size(0) == q.size(1) && x_QN.size(1) == q.size(0) &&
           x_QN.scalar_type() == wide;
  };
  const int64_t result[] = {q.size(0), q.size(1), v.size(2)};
  require(out_grad.sizes() == at::IntArrayRef(result) && out_grad.scalar_type() == wide &&
              is_of_rows(lse_QN) && is_of_rows(delta_QN),
          "attention", "gradient ", out_grad.sizes(), ' ', out_grad.scalar_type(), ", lse ",
          lse_QN.sizes(), ", delta ", delta_QN.sizes(), " do not fit q ", q.sizes(), " and v ",
          v.sizes());
}

}  // namespace

at::Tensor attention(const at::Tensor& q_NQD, const at::Tensor& k_MKD, const at::Tensor& v_MKD,
                     const Segments& segments, const AttentionOptions& options) {
  check_attention(q_NQD, k_MKD, v_MKD, segments, options);
  if (options.chunk > 0) {
    AttentionOptions within = options;
    within.chunk = 0;
    return attention(q_NQD, k_MKD, v_MKD, in_chunks(segments, options.chunk), within);
  }
  // A cap has no kernel, but the pieces of one: its graph would keep every score.
  const bool in_pieces = options.softcap > 0 && fused_for(Work::kRows, q_NQD);
  if (!in_pieces && !table_for(q_NQD, k_MKD, segments, options))
    return oracle::attention(q_NQD, k_MKD, v_MKD, segments, options);
  const Spans spans = spans_of(segments);
  if (needs_no_graph({&q_NQD, &k_MKD, &v_MKD}))
    return seen_in(q_NQD, k_MKD, v_MKD, spans, options).out_NQD;
  return OwnAttention::apply(q_NQD, k_MKD, v_MKD, std::tuple(spans, options));
}

at::Tensor oracle::attention(const at::Tensor& q_NQD, const at::Tensor& k_MKD,
                             const at::Tensor& v_MKD, const Segments& segments,
                             const AttentionOptions& options) {
  check_attention(q_NQD, k_MKD, v_MKD, segments, options);
  if (options.chunk > 0) {
    AttentionOptions within = options;
    within.chunk = 0;
    return oracle::attention(q_NQD, k_MKD, v_MKD, in_chunks(segments, options.chunk), within);
  }
  if (segments.count() == 1)
    return one_segment(q_NQD, k_MKD, v_MKD, segments.is_causal(0), options);
  // split, not narrow: its backward is one concatenation instead of a padded copy per segment.
  const std::vector<at::Tensor> q = q_NQD.split_with_sizes(lengths(segments.q_starts));
  const std::vector<at::Tensor> k = k_MKD.split_with_sizes(lengths(segments.k_starts));
  const std::vector<at::Tensor> v = v_MKD.split_with_sizes(lengths(segments.k_starts));
  std::vector<at::Tensor> outputs;
  for (size_t s = 0; s < q.size(); ++s)
    outputs.push_back(one_segment(q[s], k[s], v[s], segments.is_causal(s), options));
  return at::cat(outputs, 0);
}

Spans spans_of(const Segments& segments) {
  Spans spans;
  for (size_t s = 1; s < segments.q_starts.size(); ++s) {
    const int64_t q = segments.q_starts[s - 1], n = segments.q_starts[s] - q;
    const int64_t k = segments.k_starts[s - 1], m = segments.k_starts[s] - k;
    if (n > 0) spans.push_back({q, n, k, m, m - n, segments.is_causal(s - 1)});
  }
  return spans;
}

Segments in_chunks(const Segments& segments, int64_t chunk) {
  Segments cut{{0}, {0}};
  const auto add = [&](int64_t queries, int64_t keys) {
    cut.q_starts.push_back(cut.q_starts.back() + queries);
    cut.k_starts.push_back(cut.k_starts.back() + keys);
  };
  for (size_t s = 1; s < segments.q_starts.size(); ++s) {
    const int64_t n = segments.q_starts[s] - segments.q_starts[s - 1],
                  m = segments.k_starts[s] - segments.k_starts[s - 1];
    const int64_t first = (m - n) / chunk * chunk;  // of the stretch that the first query is in
    if (first > 0) add(0, first);
    for (int64_t begin = first; begin < m; begin += chunk) {
      const int64_t end = std::min(begin + chunk, m);
      add(end - std::max(begin, m - n), end - begin);
    }
  }
  return cut;
}

void require_masks(const Segments& segments, const AttentionOptions& options) {
  const auto count = static_cast<size_t>(segments.count());
  require(segments.causal.size() <= count, "attention", segments.causal.size(),
          " segments are said to be causal or not, of ", count);
  for (size_t s = 0; s < segments.causal.size(); ++s) require_mask(segments.causal[s], options);
}

PartialAttention attention_part(const at::Tensor& q_NQD, const at::Tensor& k_MKD,
                                const at::Tensor& v_MKD, const Spans& spans,
                                const AttentionOptions& options) {
  check_part(q_NQD, k_MKD, v_MKD, spans, options);
  const at::NoGradGuard no_grad;
  const Backend* const table = table_for(q_NQD, options);
  return table ? table->attention(q_NQD, k_MKD, v_MKD, spans, options, at::kFloat)
               : oracle::attention_part(q_NQD, k_MKD, v_MKD, spans, options);
}

PartialAttention oracle::attention_part(const at::Tensor& q_NQD, const at::Tensor& k_MKD,
                                        const at::Tensor& v_MKD, const Spans& spans,
                                        const AttentionOptions& options) {
  const at::TensorOptions wide = q_NQD.options().dtype(device::wide_type(q_NQD.scalar_type()));
  PartialAttention part{
      at::zeros({q_NQD.size(0), q_NQD.size(1), v_MKD.size(2)}, wide),
      at::full({q_NQD.size(1), q_NQD.size(0)}, -std::numeric_limits<double>::infinity(), wide)};
  for (const Span& span : spans) {
    const int64_t n = span.q_len, kv_heads = k_MKD.size(1);
    const at::Tensor q = by_group(q_NQD.narrow(0, span.q, n), kv_heads);
    const at::Tensor scores = scores_of(q, k_MKD.narrow(0, span.k, span.k_len), span, options);
    const at::Tensor lse = at::logsumexp(scores, -1, /*keepdim=*/true);
    const at::Tensor weights = at::exp(scores - lse.masked_fill(lse.isinf(), 0));
    const at::Tensor v = v_MKD.narrow(0, span.k, span.k_len).transpose(0, 1).to(wide);
    const at::Tensor out = at::bmm(weights.view({kv_heads, -1, span.k_len}), v);
    part.out_NQD.narrow(0, span.q, n).copy_(by_row(out, n));
    part.lse_QN.narrow(1, span.q, n).copy_(lse.view({-1, n}));
  }
  return part;
}

void merge(PartialAttention& into, const PartialAttention& more) {
  if (!into.out_NQD.defined()) {
    into = more;
    return;
  }
  completed_backend(into.out_NQD.device().type()).merge(into, more);
}

at::Tensor attention_delta(const at::Tensor& out_grad_NQD, const at::Tensor& out_NQD) {
  return completed_backend(out_NQD.device().type()).attention_delta(out_grad_NQD, out_NQD);
}

AttentionGrads attention_part_backward(const at::Tensor& q_NQD, const at::Tensor& k_MKD,
                                       const at::Tensor& v_MKD, const Spans& spans,
                                       const AttentionOptions& options,
                                       const at::Tensor& out_grad_NQD, const at::Tensor& lse_QN,
                                       const at::Tensor& delta_QN) {
  check_part(q_NQD, k_MKD, v_MKD, spans, options);
  check_gradients(q_NQD, v_MKD, out_grad_NQD, lse_QN, delta_QN);
  const at::NoGradGuard no_grad;
  const Backend* const table = table_for(q_NQD, options);
  const auto backward = table ? table->attention_backward : &oracle::attention_part_backward;
  return backward(q_NQD, k_MKD, v_MKD, spans, options, out_grad_NQD, lse_QN, delta_QN);
}

AttentionGrads oracle::attention_part_backward(const at::Tensor& q_NQD, const at::Tensor& k_MKD,
                                               const at::Tensor& v_MKD, const Spans& spans,
                                               const AttentionOptions& options,
                                               const at::Tensor& out_grad_NQD,
                                               const at::Tensor& lse_QN,
                                               const at::Tensor& delta_QN) {
  const at::TensorOptions wide = out_grad_NQD.options();
  AttentionGrads grads{at::zeros(q_NQD.sizes(), wide), at::zeros(k_MKD.sizes(), wide),
                       at::zeros(v_MKD.sizes(), wide)};
  for (const Span& span : spans) {
    const int64_t n = span.q_len, m = span.k_len, kv_heads = k_MKD.size(1);
    const at::Tensor q = by_group(q_NQD.narrow(0, span.q, n), kv_heads);
    const at::Tensor k_MKd = k_MKD.narrow(0, span.k, m);
    const at::Tensor k = k_MKd.transpose(0, 1).to(wide),
                     v = v_MKD.narrow(0, span.k, m).transpose(0, 1).to(wide);
    const at::Tensor out_grad = by_group(out_grad_NQD.narrow(0, span.q, n), kv_heads);
    const auto of_rows = [&](const at::Tensor& x_QN) {
      return x_QN.narrow(1, span.q, n).reshape({kv_heads, -1, n, 1});
    };
    const at::Tensor scores = scores_of(q, k_MKd, span, options);
    const at::Tensor weights = at::exp(scores - of_rows(lse_QN));
    const at::Tensor d_capped = at::bmm(out_grad, v.transpose(1, 2)).view(weights.sizes());
    d_capped.sub_(of_rows(delta_QN)).mul_(weights).mul_(options.scale);
    // The slope of the cap; where a key is hidden the score is infinite and its weight 0.
    if (options.softcap > 0) {
      const at::Tensor slope = scores.div(options.softcap).square_().neg_().add_(1);
      d_capped.mul_(slope.masked_fill_(scores.isinf(), 0));
    }
    const at::Tensor d_scores = d_capped.view({kv_heads, -1, m});
    grads.q_NQD.narrow(0, span.q, n).add_(by_row(at::bmm(d_scores, k), n));
    grads.k_MKD.narrow(0, span.k, m)
        .add_(at::bmm(d_scores.transpose(1, 2), q.to(wide)).transpose(0, 1));
    grads.v_MKD.narrow(0, span.k, m)
        .add_(at::bmm(weights.view({kv_heads, -1, m}).transpose(1, 2), out_grad).transpose(0, 1));
  }
  return grads;
}

}  // namespace danlu::ops
