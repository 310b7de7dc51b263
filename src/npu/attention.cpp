// Attention over packed sequences, by CANN's fused operators for sequences of any lengths (TND).
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <array>
#include <limits>
#include <mutex>

#include "base/error.h"
#include "npu/arithmetic.h"
#include "npu/attention_bias.h"
#include "npu/attention_capped.h"
#include "npu/attention_sequences.h"
#include "npu/constants.h"
#include "npu/context.h"
#include "npu/operators.h"
#include "npu/streams.h"
#include "npu/table.h"

namespace danlu::npu {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int32_t>::max();
constexpr int64_t kCopies = 8;  // the operators keep each largest score and sum eight times
constexpr int64_t kMaskSize = 2048;

/// What of the keys a call hides.
struct Masking {
  int64_t mode = 0, before = kUnlimited, behind = kUnlimited;
  at::Tensor mask;
};

/// 1 where a key is hidden: above the diagonal. The operators lay it over every block.
const at::Tensor& triangle(const at::Device& device) {
  static auto* const known =
      new Constant([] { return at::ones({kMaskSize, kMaskSize}, at::kByte).triu(1); });
  return known->on(device);
}

Masking masking_of(const SequenceGroup& group, const at::Device& device) {
  constexpr int64_t kCausal = 3, kBand = 4;
  if (group.seen == Seen::kAll) return {};
  if (group.seen == Seen::kBand) return {kBand, group.before, group.behind, triangle(device)};
  return {kCausal, kUnlimited, 0, triangle(device)};
}

/// Queries, keys and values of a group, one sequence after the other.
struct Packed {
  at::Tensor q, k, v;
  std::vector<int64_t> q_ends, k_ends;
};
Packed packed(const at::Tensor& q_NQD, const at::Tensor& k_MKD, const at::Tensor& v_MKD,
              const SequenceGroup& group) {
  Packed result{
      group.packed_queries(q_NQD), group.packed_keys(k_MKD), group.packed_keys(v_MKD), {}, {}};
  int64_t queries = 0, keys = 0;
  for (const Sequence& sequence : group.sequences) {
    result.q_ends.push_back(queries += sequence.q_len);
    result.k_ends.push_back(keys += sequence.k_len);
  }
  return result;
}

/// The operators keep a number of each query and head sequence by sequence, [heads, queries, 8].
/// Calls with the places of the sequence (or of all, where they are of one length): the view there,
/// and the columns of [heads, queries] that it is.
template <typename Visit>
void each_sequence(const SequenceGroup& group, const at::Tensor& kept_TN8, const at::Tensor& x_QN,
                   int64_t copies, const Visit& visit) {
  const int64_t heads = x_QN.size(0), count = static_cast<int64_t>(group.sequences.size());
  const int64_t length = group.sequences.front().q_len;
  if (group.has_one_length() && group.has_adjacent_queries()) {
    const at::Tensor columns = x_QN.narrow(1, group.sequences.front().q, count * length);
    visit(View(kept_TN8, at::kFloat, {heads, count, length, copies},
               {length * kCopies, heads * length * kCopies, kCopies, 1}),
          columns.unflatten(1, {count, length}));
    return;
  }
  int64_t first = 0;
  for (const Sequence& sequence : group.sequences) {
    visit(View(kept_TN8, at::kFloat, {heads, 1, sequence.q_len, copies},
               {sequence.q_len * kCopies, 0, kCopies, 1}, first * heads * kCopies),
          x_QN.narrow(1, sequence.q, sequence.q_len).unsqueeze(1));
    first += sequence.q_len;
  }
}

void attend(const SequenceGroup& group, const ops::AttentionOptions& options, const Packed& in,
            const at::Tensor& out_NQD, const at::Tensor& lse_QN) {
  const int64_t tokens = in.q.size(0), heads = in.q.size(1), width = in.v.size(2);
  const Masking masking = masking_of(group, in.q.device());
  const at::Tensor largest = fresh(in.q, {tokens, heads, kCopies}, at::kFloat),
                   sums = fresh(largest), none = fresh(in.q, {0}, in.q.scalar_type());
  const bool is_direct = group.has_adjacent_queries() && out_NQD.is_contiguous();
  const at::Tensor out = is_direct ? out_NQD.narrow(0, group.sequences.front().q, tokens)
                                   : fresh(in.q, {tokens, heads, width}, in.q.scalar_type());
  char layout[] = "TND";
  aclnn::attention(View(in.q), View(in.k), View(in.v), nullptr, nullptr, nullptr,
                   View(masking.mask), nullptr, Numbers(in.q_ends), Numbers(in.k_ends),
                   options.scale, 1.0, masking.before, masking.behind, heads, layout, int64_t{0},
                   masking.mode, View(largest), View(sums), View(none), View(out));
  if (!is_direct) group.unpack_queries(out, out_NQD);
  const at::Tensor lse_TN8 = logarithm(sums);
  add(lse_TN8, largest);
  each_sequence(group, lse_TN8, lse_QN, 1, [](const View& kept, const at::Tensor& columns) {
    aclnn::inplace_copy(View(columns.unsqueeze(3)), kept);
  });
}

}  // namespace

ops::PartialAttention attention(const at::Tensor& q_NQD, const at::Tensor& k_MKD,
                                const at::Tensor& v_MKD, const ops::Spans& spans,
                                const ops::AttentionOptions& options, at::ScalarType result) {
  if (options.softcap > 0) return capped_attention(q_NQD, k_MKD, v_MKD, spans, options, result);
  // A result that is to keep more than the operands have asks for operands that do.
  const at::ScalarType type = result == at::kFloat ? at::kFloat : q_NQD.scalar_type();
  const Biased biased(q_NQD, k_MKD, spans, options, type);
  const at::Tensor &q = biased.q_NQD, &k = biased.k_MKD, v = cast(v_MKD, type);
  const int64_t n = q.size(0), heads = q.size(1);
  const at::Tensor out_NQD = fresh(q, {n, heads, v.size(2)}, type),
                   lse_QN = fresh(q, {heads, n}, at::kFloat);
  const std::vector<SequenceGroup> groups = groups_of(spans, options);
  if (num_queries(groups) < n) {
    out_NQD.zero_();
    lse_QN.fill_(-std::numeric_limits<double>::infinity());
  }
  for (const SequenceGroup& group : groups)
    attend(group, options, packed(q, k, v, group), out_NQD, lse_QN);
  biased.add_to_lse(lse_QN, -1);
  return {cast(out_NQD, result), lse_QN};
}

namespace {

/// The operator takes the result of attention for nothing but the product of each row with the
/// row's gradient, which is what `delta` is: of all rows that have this product, the one that lies
/// along the gradient.
at::Tensor result_with_delta(const at::Tensor& out_grad_NQD, const at::Tensor& delta_QN) {
  constexpr double kNoLength = 1e-37;
  const at::Tensor grad = wide(out_grad_NQD);
  const at::Tensor squares_NQ1 = sum_over(times(grad, grad), {2}, true);
  aclnn::adds(View(squares_NQ1), Number(kNoLength), Number(1.0), View(squares_NQ1));
  return times(grad, divided(delta_QN.t().contiguous().unsqueeze(2), squares_NQ1));
}

struct PackedGrads {
  at::Tensor q, k, v;
};
PackedGrads attend_backward(const SequenceGroup& group, const ops::AttentionOptions& options,
                            const Packed& in, const at::Tensor& out_grad, const at::Tensor& out,
                            const at::Tensor& lse_QN) {
  const int64_t tokens = in.q.size(0), heads = in.q.size(1);
  const Masking masking = masking_of(group, in.q.device());
  // exp(score - largest) / sum is the same with the log of the whole sum as the largest and 1 as
  // the sum: this way also for a part of the keys.
  const at::Tensor largest = fresh(in.q, {tokens, heads, kCopies}, at::kFloat),
                   sums = fresh(largest), none = fresh(in.q, {0}, in.q.scalar_type());
  sums.fill_(1.0);
  each_sequence(group, largest, lse_QN, kCopies, [](const View& kept, const at::Tensor& columns) {
    aclnn::inplace_copy(kept, View(columns.unsqueeze(3)));
  });
  const PackedGrads grads{fresh(in.q), fresh(in.k), fresh(in.v)};
  char layout[] = "TND";
  aclnn::attention_grad(View(in.q), View(in.k), View(in.v), View(out_grad), nullptr, nullptr,
                        nullptr, View(masking.mask), View(largest), View(sums), nullptr, View(out),
                        nullptr, Numbers(in.q_ends), Numbers(in.k_ends), options.scale, 1.0,
                        masking.before, masking.behind, heads, layout, int64_t{0}, masking.mode,
                        View(grads.q), View(grads.k), View(grads.v), View(none));
  return grads;
}

}  // namespace

ops::AttentionGrads attention_backward(const at::Tensor& q_NQD, const at::Tensor& k_MKD,
                                       const at::Tensor& v_MKD, const ops::Spans& spans,
                                       const ops::AttentionOptions& options,
                                       const at::Tensor& out_grad_NQD, const at::Tensor& lse_QN,
                                       const at::Tensor& delta_QN) {
  if (options.softcap > 0) {
    return capped_attention_backward(q_NQD, k_MKD, v_MKD, spans, options, out_grad_NQD, lse_QN,
                                     delta_QN);
  }
  const at::ScalarType type = q_NQD.scalar_type();
  const Biased biased(q_NQD, k_MKD, spans, options, type);
  const at::Tensor own_lse_QN = biased.adds() ? lse_QN.clone() : lse_QN;
  biased.add_to_lse(own_lse_QN, 1);
  const at::Tensor out_NQD = cast(result_with_delta(out_grad_NQD, delta_QN), type),
                   grad_NQD = cast(out_grad_NQD, type);
  const auto zeros = [&](const at::Tensor& x) { return fresh(x, x.sizes(), at::kFloat).zero_(); };
  ops::AttentionGrads sums{zeros(q_NQD), zeros(k_MKD), zeros(v_MKD)};
  for (const SequenceGroup& group : groups_of(spans, options)) {
    const PackedGrads grads =
        attend_backward(group, options, packed(biased.q_NQD, biased.k_MKD, v_MKD, group),
                        group.packed_queries(grad_NQD), group.packed_queries(out_NQD), own_lse_QN);
    group.add_queries(cast(grads.q.narrow(2, 0, q_NQD.size(2)), at::kFloat), sums.q_NQD);
    group.add_keys(cast(grads.k.narrow(2, 0, k_MKD.size(2)), at::kFloat), sums.k_MKD);
    group.add_keys(cast(grads.v, at::kFloat), sums.v_MKD);
  }
  return sums;
}

void merge(const ops::PartialAttention& into, const ops::PartialAttention& more) {
  if (into.lse_QN.numel() == 0) return;
  // Where neither part has keys the largest is -inf, whose difference from itself is no number.
  constexpr double kFinite = -3e38;
  const at::Tensor lowest = fresh(into.lse_QN, {1, 1}, at::kFloat);
  lowest.fill_(kFinite);
  const auto at_least = [&](const at::Tensor& x) {
    const at::Tensor result = fresh(x, x.sizes(), at::kFloat);
    aclnn::maximum(View(x), View(lowest), View(result));
    return result;
  };
  const auto exp_less = [&](const at::Tensor& x, const at::Tensor& less) {
    const at::Tensor difference = fresh(less);
    aclnn::add(View(x), View(less), Number(-1.0), View(difference));
    return exponential(difference);
  };
  const at::Tensor larger = fresh(into.lse_QN, into.lse_QN.sizes(), at::kFloat);
  aclnn::maximum(View(into.lse_QN), View(more.lse_QN), View(larger));
  const at::Tensor from = at_least(larger);
  const at::Tensor sum = exp_less(into.lse_QN, from);
  add(sum, exp_less(more.lse_QN, from));
  const at::Tensor lse_QN = logarithm(sum);
  add(lse_QN, from);
  const at::Tensor known = at_least(lse_QN);
  const auto share = [&](const at::Tensor& part_QN) {
    return exp_less(part_QN, known).t().unsqueeze(2);
  };
  const at::Tensor out = times(into.out_NQD, share(into.lse_QN));
  add(out, times(more.out_NQD, share(more.lse_QN)));
  into.out_NQD.copy_(out);
  into.lse_QN.copy_(lse_QN);
}

}  // namespace danlu::npu
