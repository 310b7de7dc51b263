#include "npu/attention_capped.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "npu/arithmetic.h"
#include "npu/attention_sequences.h"
#include "npu/operators.h"
#include "npu/table.h"
#include "ops/head_groups.h"

namespace danlu::npu {
namespace {

/// Scores that there are at a time.
constexpr int64_t kMostScores = int64_t{1} << 24;
constexpr int64_t kNoLimit = std::numeric_limits<int32_t>::max();

/// Queries [q, q + n) and keys [k, k + m). Query i stands at the key `lead` + i, counted from k,
/// and sees the keys from `before` before it to `behind` behind it.
struct Tile {
  int64_t q, n, k, m, lead, before, behind;
  bool hides() const { return lead + behind < m - 1 || lead + n - 1 > before; }
};

std::vector<Tile> tiles_of(const SequenceGroup& group, int64_t heads) {
  const bool is_band = group.seen == Seen::kBand;
  const int64_t before = is_band ? group.before : kNoLimit, behind = is_band ? group.behind
                                                                     : group.seen == Seen::kCausal
                                                                         ? 0
                                                                         : kNoLimit;
  std::vector<Tile> tiles;
  for (const Sequence& sequence : group.sequences) {
    const int64_t step = std::max<int64_t>(1, kMostScores / (heads * sequence.k_len));
    for (int64_t i = 0; i < sequence.q_len; i += step) {
      const int64_t n = std::min(step, sequence.q_len - i),
                    place = sequence.k_len - sequence.q_len + i,
                    from = std::max<int64_t>(0, place - before),
                    to = std::min(sequence.k_len, place + n + behind);
      tiles.push_back(
          {sequence.q + i, n, sequence.k + from, to - from, place - from, before, behind});
    }
  }
  return tiles;
}

/// [1, count] of first, first + 1, …
at::Tensor counted_from(int64_t first, int64_t count, const at::Device& device) {
  const at::Tensor host = at::empty({1, count}, at::kFloat);
  for (int64_t i = 0; i < count; ++i) host.data_ptr<float>()[i] = static_cast<float>(first + i);
  return host.to(device);
}

/// Scores [heads, n, m] with -inf where a key is farther from its query than `most`: distance [n,
/// m].
at::Tensor hidden_beyond(const at::Tensor& scores, const at::Tensor& distance, int64_t most) {
  const at::Tensor flag = fresh(distance, distance.sizes(), at::kBool),
                   none = fresh(scores, {1, 1, 1}, at::kFloat), result = fresh(scores);
  aclnn::ge_scalar(View(distance), Number(static_cast<double>(most + 1)), View(flag));
  none.fill_(-std::numeric_limits<double>::infinity());
  aclnn::where(View(flag.unsqueeze(0)), View(none), View(scores), View(result));
  return result;
}

at::Tensor seen_scores(const at::Tensor& capped_QNM, const Tile& tile) {
  if (!tile.hides()) return capped_QNM;
  const at::Device device = capped_QNM.device();
  const at::Tensor keys = counted_from(0, tile.m, device),
                   queries = counted_from(tile.lead, tile.n, device).t(),
                   distance = fresh(keys, {tile.n, tile.m}, at::kFloat);
  aclnn::add(View(keys), View(queries), Number(-1.0), View(distance));
  at::Tensor scores = capped_QNM;
  if (tile.lead + tile.behind < tile.m - 1) scores = hidden_beyond(scores, distance, tile.behind);
  if (tile.lead + tile.n - 1 > tile.before)
    scores = hidden_beyond(scores, times(distance, -1.0), tile.before);
  return scores;
}

/// A tile's operands as f32: queries [K, G · n, D], keys and values [K, m, D].
struct Operands {
  at::Tensor q, k, v;
  Operands(const at::Tensor& q_NQD, const at::Tensor& k_MKD, const at::Tensor& v_MKD,
           const Tile& tile)
      : q(ops::by_group(wide(q_NQD.narrow(0, tile.q, tile.n)), k_MKD.size(1))),
        k(wide(k_MKD.narrow(0, tile.k, tile.m)).transpose(0, 1)),
        v(wide(v_MKD.narrow(0, tile.k, tile.m)).transpose(0, 1)) {}

  /// cap * tanh(scale q k^T / cap), [K, G · n, m].
  at::Tensor capped_scores(const ops::AttentionOptions& options) const {
    const at::Tensor share = batched_product(q, k.transpose(1, 2)), scores = fresh(share);
    multiply(share, options.scale / options.softcap);
    aclnn::tanh(View(share), View(scores));
    multiply(scores, options.softcap);
    return scores;
  }
};

/// [K, G · n, m] as [heads, n, m], and a number of each query and head for it.
at::Tensor by_head(const at::Tensor& scores, int64_t n) {
  return scores.view({-1, n, scores.size(2)});
}
at::Tensor beside_scores(const at::Tensor& x_QN, const Tile& tile) {
  return x_QN.narrow(1, tile.q, tile.n).unsqueeze(2);
}
at::Tensor less(const at::Tensor& x, const at::Tensor& y) {
  const at::Tensor result = fresh(x);
  aclnn::add(View(x), View(y), Number(-1.0), View(result));
  return result;
}

template <typename Visit>
void each_tile(const ops::Spans& spans, const ops::AttentionOptions& options, int64_t heads,
               const Visit& visit) {
  for (const SequenceGroup& group : groups_of(spans, options)) {
    for (const Tile& tile : tiles_of(group, heads)) visit(tile);
  }
}

}  // namespace

ops::PartialAttention capped_attention(const at::Tensor& q_NQD, const at::Tensor& k_MKD,
                                       const at::Tensor& v_MKD, const ops::Spans& spans,
                                       const ops::AttentionOptions& options,
                                       at::ScalarType result) {
  const int64_t n = q_NQD.size(0), heads = q_NQD.size(1);
  const at::Tensor out_NQD = fresh(q_NQD, {n, heads, v_MKD.size(2)}, result).zero_(),
                   lse_QN = fresh(q_NQD, {heads, n}, at::kFloat);
  lse_QN.fill_(-std::numeric_limits<double>::infinity());
  each_tile(spans, options, heads, [&](const Tile& tile) {
    const Operands of(q_NQD, k_MKD, v_MKD, tile);
    const at::Tensor scores = seen_scores(by_head(of.capped_scores(options), tile.n), tile);
    const at::Tensor largest = largest_along(scores, 2);
    const at::Tensor weights = exponential(less(scores, largest)),
                     sums = sum_over(weights, {2}, true);
    const at::Tensor out = batched_product(weights.view({of.q.size(0), -1, tile.m}), of.v);
    const at::Tensor shares = divided(by_head(out, tile.n), sums);
    out_NQD.narrow(0, tile.q, tile.n).copy_(ops::by_row(shares.view(out.sizes()), tile.n));
    const at::Tensor lse = logarithm(sums);
    add(lse, largest);
    lse_QN.narrow(1, tile.q, tile.n).copy_(lse.squeeze(2));
  });
  return {out_NQD, lse_QN};
}

ops::AttentionGrads capped_attention_backward(const at::Tensor& q_NQD, const at::Tensor& k_MKD,
                                              const at::Tensor& v_MKD, const ops::Spans& spans,
                                              const ops::AttentionOptions& options,
                                              const at::Tensor& out_grad_NQD,
                                              const at::Tensor& lse_QN,
                                              const at::Tensor& delta_QN) {
  const auto zeros = [&](const at::Tensor& x) { return fresh(x, x.sizes(), at::kFloat).zero_(); };
  const ops::AttentionGrads grads{zeros(q_NQD), zeros(k_MKD), zeros(v_MKD)};
  each_tile(spans, options, q_NQD.size(1), [&](const Tile& tile) {
    const Operands of(q_NQD, k_MKD, v_MKD, tile);
    const int64_t kv_heads = of.k.size(0), n = tile.n;
    const at::Tensor out_grad = ops::by_group(wide(out_grad_NQD.narrow(0, tile.q, n)), kv_heads);
    const at::Tensor capped_QNM = by_head(of.capped_scores(options), n);
    const at::Tensor weights =
        exponential(less(seen_scores(capped_QNM, tile), beside_scores(lse_QN, tile)));
    const at::Tensor towards = batched_product(out_grad, of.v.transpose(1, 2));
    const at::Tensor d_capped =
        times(weights, less(by_head(towards, n), beside_scores(delta_QN, tile)));
    multiply(d_capped, options.scale);
    const at::Tensor d_scores =
        npu::through_cap(d_capped, capped_QNM, options.softcap).view(towards.sizes());
    add(grads.q_NQD.narrow(0, tile.q, n), ops::by_row(batched_product(d_scores, of.k), n));
    add(grads.k_MKD.narrow(0, tile.k, tile.m),
        batched_product(d_scores.transpose(1, 2), of.q).transpose(0, 1));
    add(grads.v_MKD.narrow(0, tile.k, tile.m),
        batched_product(weights.view(towards.sizes()).transpose(1, 2), out_grad).transpose(0, 1));
  });
  return grads;
}

}  // namespace danlu::npu
