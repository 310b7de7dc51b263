#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "ops/fused_cpu.h"

namespace danlu::ops::cpu {
namespace attention_cpu_detail {

// Multiples of the six rows of a product's register block.
constexpr int64_t kTileQueries = 48;
// In backward a tile meets its keys in blocks: two [48, 512] blocks of f32 stay in a core's cache.
constexpr int64_t kBlockKeys = 510;
// Rows a power of two apart would share cache sets.
constexpr int64_t kRowPadding = 16;
constexpr float kNothingSeen = -std::numeric_limits<float>::infinity();

/// What attention is computed over, in f32. Heads are strided: one is [tokens, D].
struct Inputs {
  at::Tensor q_NQD, k_MKD, v_MKD;
  Spans spans;
  float scale = 1;
  int64_t window = 0;
  std::vector<float> slopes;  ///< one per query head

  int64_t heads() const { return q_NQD.size(1); }
  int64_t kv_heads() const { return k_MKD.size(1); }
  int64_t head_dim() const { return q_NQD.size(2); }
};

/// [heads, D, tokens] of x [tokens, heads, D]: the right factor of products with x^T.
at::Tensor transposed(const at::Tensor& x) {
  const int64_t tokens = x.size(0);
  at::Tensor result =
      at::empty({x.size(1), x.size(2), tokens + kRowPadding}, x.options().dtype(at::kFloat))
          .narrow(2, 0, tokens);
  return result.copy_(x.permute({1, 2, 0}));
}

/// Queries [begin, end) of a span and the keys that some of them sees; all counted in it.
struct Tile {
  Span span;
  int64_t begin, end;
  int64_t first_key, end_key;
};
struct Keys {
  int64_t begin, end;
};

/// Keys of the span that one of its queries sees; maybe none.
Keys seen_by(int64_t query, const Span& span, int64_t window) {
  const int64_t end = std::clamp<int64_t>(span.lead + query + 1, 0, span.k_len);
  if (window == 0) return {0, end};
  return {std::clamp<int64_t>(span.lead + query + 1 - window, 0, end), end};
}

std::vector<Tile> tiles_of(const Span& span, int64_t window) {
  std::vector<Tile> tiles;
  for (int64_t begin = 0; begin < span.q_len; begin += kTileQueries) {
    const int64_t end = std::min(span.q_len, begin + kTileQueries);
    tiles.push_back(
        {span, begin, end, seen_by(begin, span, window).begin, seen_by(end - 1, span, window).end});
  }
  return tiles;
}

size_t unsigned_of(int64_t value) { return static_cast<size_t>(value); }

/// Pointers and strides of one head of a [tokens, heads, D] tensor of f32.
struct Rows {
  float* data;
  size_t stride;
  float* row(int64_t index) const { return data + unsigned_of(index) * stride; }
};
Rows rows_of(const at::Tensor& x, int64_t first_token, int64_t head) {
  return {x.data_ptr<float>() + first_token * x.stride(0) + head * x.stride(1),
          unsigned_of(x.stride(0))};
}

/// scores [queries of the tile, keys] = q k^T.
void score(const Tile& tile, const Rows& q, const at::Tensor& kt_KDM, int64_t kv_head,
           int64_t first_key, int64_t num_keys, float* scores, size_t score_row) {
  const float* k = kt_KDM.data_ptr<float>() + kv_head * kt_KDM.stride(0) + first_key;
  multiply({unsigned_of(tile.end - tile.begin), unsigned_of(num_keys), unsigned_of(kt_KDM.size(1)),
            q.row(tile.begin), q.stride, 1, k, unsigned_of(kt_KDM.stride(1)), scores, score_row,
            false});
}

void forward_tile(const Inputs& in, const at::Tensor& kt_KDM, const Tile& tile, int64_t head,
                  const at::Tensor& out_NQD, const at::Tensor& lse_QN,
                  std::vector<float>& scratch) {
  const int64_t first_query = tile.span.q, first_key = tile.span.k, lead = tile.span.lead;
  const int64_t kv_head = head / (in.heads() / in.kv_heads());
  const int64_t keys = tile.end_key - tile.first_key;
  scratch.resize(unsigned_of(kTileQueries * keys));
  float* scores = scratch.data();
  const Rows q = rows_of(in.q_NQD, first_query, head);
  score(tile, q, kt_KDM, kv_head, first_key + tile.first_key, keys, scores, unsigned_of(keys));
  for (int64_t query = tile.begin; query < tile.end; ++query) {
    const Keys seen = seen_by(query, tile.span, in.window);
    float* row = scores + (query - tile.begin) * keys;
    float* first = row + (seen.begin - tile.first_key);
    const float lse = seen.begin == seen.end
                          ? kNothingSeen
                          : softmax_row(first, unsigned_of(seen.end - seen.begin), in.scale,
                                        in.slopes[unsigned_of(head)],
                                        static_cast<float>(lead + query - seen.begin));
    lse_QN.data_ptr<float>()[head * lse_QN.size(1) + first_query + query] = lse;
    std::fill(row, first, 0.0f);
    std::fill(row + (seen.end - tile.first_key), row + keys, 0.0f);
  }
  const Rows v = rows_of(in.v_MKD, first_key + tile.first_key, kv_head);
  const Rows out = rows_of(out_NQD, first_query, head);
  multiply({unsigned_of(tile.end - tile.begin), unsigned_of(in.head_dim()), unsigned_of(keys),
            scores, unsigned_of(keys), 1, v.data, v.stride, out.row(tile.begin), out.stride,
            false});
}

PartialAttention forward_all(const Inputs& in) {
  const at::Tensor kt_KDM = transposed(in.k_MKD);
  const at::Tensor out_NQD = at::empty(in.q_NQD.sizes(), in.q_NQD.options());
  const at::Tensor lse_QN = at::empty({in.heads(), in.q_NQD.size(0)}, in.q_NQD.options());
  std::vector<Tile> tiles;
  int64_t met = 0;
  for (const Span& span : in.spans) {
    met += span.q_len;
    for (const Tile& tile : tiles_of(span, in.window)) {
      if (tile.first_key < tile.end_key) {
        tiles.push_back(tile);
      } else {
        met -= tile.end - tile.begin;
      }
    }
  }
  if (met < in.q_NQD.size(0)) {
    out_NQD.zero_();
    lse_QN.fill_(kNothingSeen);
  }
  const auto count = static_cast<int64_t>(tiles.size());
  at::parallel_for(0, count * in.heads(), 1, [&](int64_t begin, int64_t end) {
    std::vector<float> scratch;
    for (int64_t task = begin; task < end; ++task)
      forward_tile(in, kt_KDM, tiles[unsigned_of(task % count)], task / count, out_NQD, lse_QN,
                   scratch);
  });
  return {out_NQD, lse_QN};
}

struct BackwardInputs {
  const Inputs& in;
  at::Tensor kt_KDM, vt_KDM, out_grad_NQD, lse_QN, delta_QN;
};

/// One tile of queries against one block of keys: adds to the gradients of both.
void backward_block(const BackwardInputs& b, const Tile& tile, int64_t head, Keys block,
                    const AttentionGrads& grads, float* weights, float* d_scores) {
  const Inputs& in = b.in;
  const int64_t first_query = tile.span.q, first_key = tile.span.k, lead = tile.span.lead;
  const int64_t kv_head = head / (in.heads() / in.kv_heads());
  const int64_t keys = block.end - block.begin;
  const size_t queries = unsigned_of(tile.end - tile.begin), width = unsigned_of(keys),
               dim = unsigned_of(in.head_dim());
  const Rows q = rows_of(in.q_NQD, first_query, head);
  const Rows out_grad = rows_of(b.out_grad_NQD, first_query, head);
  const int64_t key = first_key + block.begin;
  score(tile, q, b.kt_KDM, kv_head, key, keys, weights, width);
  score(tile, out_grad, b.vt_KDM, kv_head, key, keys, d_scores, width);
  for (int64_t query = tile.begin; query < tile.end; ++query) {
    const Keys all = seen_by(query, tile.span, in.window);
    const int64_t begin = std::clamp(all.begin, block.begin, block.end) - block.begin;
    const int64_t end = std::clamp(all.end, block.begin, block.end) - block.begin;
    float* weight = weights + (query - tile.begin) * keys;
    float* d_score = d_scores + (query - tile.begin) * keys;
    const int64_t at = head * b.lse_QN.size(1) + first_query + query;
    softmax_again(weight + begin, unsigned_of(end - begin), in.scale, in.slopes[unsigned_of(head)],
                  static_cast<float>(lead + query - block.begin - begin),
                  b.lse_QN.data_ptr<float>()[at]);
    softmax_backward(weight + begin, d_score + begin, unsigned_of(end - begin), in.scale,
                     b.delta_QN.data_ptr<float>()[at]);
    for (float* row : {weight, d_score}) {
      std::fill(row, row + begin, 0.0f);
      std::fill(row + end, row + keys, 0.0f);
    }
  }
  const Rows k = rows_of(in.k_MKD, key, kv_head), dk = rows_of(grads.k_MKD, key, kv_head),
             dv = rows_of(grads.v_MKD, key, kv_head), dq = rows_of(grads.q_NQD, first_query, head);
  multiply({queries, dim, width, d_scores, width, 1, k.data, k.stride, dq.row(tile.begin),
            dq.stride, true});
  multiply({width, dim, queries, d_scores, 1, width, q.row(tile.begin), q.stride, dk.data,
            dk.stride, true});
  multiply({width, dim, queries, weights, 1, width, out_grad.row(tile.begin), out_grad.stride,
            dv.data, dv.stride, true});
}

/// Spans of the same keys, which lie beside each other.
std::vector<Spans> by_keys(const Spans& spans) {
  std::vector<Spans> result;
  for (const Span& span : spans) {
    if (result.empty() || result.back().front().k != span.k ||
        result.back().front().k_len != span.k_len) {
      result.emplace_back();
    }
    result.back().push_back(span);
  }
  return result;
}

/// All queries of the same keys that share a key/value head; nobody else writes its gradients.
void backward_group(const BackwardInputs& b, const Spans& spans, int64_t kv_head,
                    const AttentionGrads& grads, std::vector<float>& scratch) {
  const int64_t group = b.in.heads() / b.in.kv_heads();
  scratch.resize(unsigned_of(2 * kTileQueries * kBlockKeys));
  for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    for (const Span& span : spans) {
      for (const Tile& tile : tiles_of(span, b.in.window)) {
        for (int64_t key = tile.first_key; key < tile.end_key; key += kBlockKeys) {
          backward_block(b, tile, head, {key, std::min(tile.end_key, key + kBlockKeys)}, grads,
                         scratch.data(), scratch.data() + kTileQueries * kBlockKeys);
        }
      }
    }
  }
}

AttentionGrads backward_all(const BackwardInputs& b) {
  const Inputs& in = b.in;
  const AttentionGrads grads{at::zeros(in.q_NQD.sizes(), in.q_NQD.options()),
                             at::zeros(in.k_MKD.sizes(), in.q_NQD.options()),
                             at::zeros(in.k_MKD.sizes(), in.q_NQD.options())};
  const std::vector<Spans> groups = by_keys(in.spans);
  const auto count = static_cast<int64_t>(groups.size());
  at::parallel_for(0, count * in.kv_heads(), 1, [&](int64_t begin, int64_t end) {
    std::vector<float> scratch;
    for (int64_t task = begin; task < end; ++task)
      backward_group(b, groups[unsigned_of(task % count)], task / count, grads, scratch);
  });
  return grads;
}

Inputs inputs_of(const at::Tensor& q_NQD, const at::Tensor& k_MKD, const at::Tensor& v_MKD,
                 const Spans& spans, double scale, int64_t window,
                 const std::vector<double>& slopes) {
  // Heads of a fused projection are views with other strides; rows themselves must be whole.
  const auto wide = [](const at::Tensor& x) {
    const at::Tensor f32 = x.to(at::kFloat);
    return f32.stride(2) == 1 ? f32 : f32.contiguous();
  };
  Inputs in{wide(q_NQD), wide(k_MKD), wide(v_MKD), spans, static_cast<float>(scale), window, {}};
  in.slopes.assign(slopes.begin(), slopes.end());
  in.slopes.resize(unsigned_of(q_NQD.size(1)), 0.0f);
  return in;
}

class FusedAttention : public torch::autograd::Function<FusedAttention> {
 public:
  using List = torch::autograd::variable_list;
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& q_NQD,
                            const at::Tensor& k_MKD, const at::Tensor& v_MKD,
                            const std::vector<int64_t>& q_starts,
                            const std::vector<int64_t>& k_starts, double scale, int64_t window,
                            const std::vector<double>& slopes) {
    const auto [out_NQD, lse_QN] = forward_all(
        inputs_of(q_NQD, k_MKD, v_MKD, spans_of({q_starts, k_starts}), scale, window, slopes));
    const at::Tensor result = out_NQD.to(q_NQD.scalar_type());
    ctx->save_for_backward({q_NQD, k_MKD, v_MKD, result, lse_QN});
    ctx->saved_data["q_starts"] = q_starts;
    ctx->saved_data["k_starts"] = k_starts;
    ctx->saved_data["scale"] = scale;
    ctx->saved_data["window"] = window;
    ctx->saved_data["slopes"] = slopes;
    return result;
  }

  static List backward(torch::autograd::AutogradContext* ctx, const List& grads) {
    const List saved = ctx->get_saved_variables();
    const Segments segments{ctx->saved_data["q_starts"].toIntVector(),
                            ctx->saved_data["k_starts"].toIntVector()};
    const Inputs in = inputs_of(
        saved[0], saved[1], saved[2], spans_of(segments), ctx->saved_data["scale"].toDouble(),
        ctx->saved_data["window"].toInt(), ctx->saved_data["slopes"].toDoubleVector());
    const at::Tensor out_grad_NQD = grads[0].to(at::kFloat).contiguous();
    const at::Tensor delta_QN = (out_grad_NQD * saved[3]).sum(-1).t().contiguous();
    const AttentionGrads found = backward_all(
        {in, transposed(in.k_MKD), transposed(in.v_MKD), out_grad_NQD, saved[4], delta_QN});
    const at::ScalarType dtype = saved[0].scalar_type();
    return {
        found.q_NQD.to(dtype), found.k_MKD.to(dtype), found.v_MKD.to(dtype), {}, {}, {}, {}, {}};
  }
};

std::vector<double> slopes_of(const AttentionOptions& options) {
  if (!options.alibi_slopes_Q.defined()) return {};
  const at::Tensor wide = options.alibi_slopes_Q.to(at::kDouble).contiguous();
  return {wide.data_ptr<double>(), wide.data_ptr<double>() + wide.numel()};
}

Inputs inputs_of(const at::Tensor& q_NQD, const at::Tensor& k_MKD, const at::Tensor& v_MKD,
                 const Spans& spans, const AttentionOptions& options) {
  return inputs_of(q_NQD, k_MKD, v_MKD, spans, options.scale, options.window, slopes_of(options));
}

}  // namespace attention_cpu_detail

at::Tensor attention(const at::Tensor& q_NQD, const at::Tensor& k_MKD, const at::Tensor& v_MKD,
                     const Segments& segments, const AttentionOptions& options) {
  using namespace attention_cpu_detail;
  return FusedAttention::apply(q_NQD, k_MKD, v_MKD, segments.q_starts, segments.k_starts,
                               options.scale, options.window, slopes_of(options));
}

PartialAttention attention_part(const at::Tensor& q_NQD, const at::Tensor& k_MKD,
                                const at::Tensor& v_MKD, const Spans& spans,
                                const AttentionOptions& options) {
  using namespace attention_cpu_detail;
  return forward_all(inputs_of(q_NQD, k_MKD, v_MKD, spans, options));
}

AttentionGrads attention_part_backward(const at::Tensor& q_NQD, const at::Tensor& k_MKD,
                                       const at::Tensor& v_MKD, const Spans& spans,
                                       const AttentionOptions& options,
                                       const at::Tensor& out_grad_NQD, const at::Tensor& lse_QN,
                                       const at::Tensor& delta_QN) {
  using namespace attention_cpu_detail;
  const Inputs in = inputs_of(q_NQD, k_MKD, v_MKD, spans, options);
  return backward_all({in, transposed(in.k_MKD), transposed(in.v_MKD), out_grad_NQD.contiguous(),
                       lse_QN.contiguous(), delta_QN.contiguous()});
}

}  // namespace danlu::ops::cpu
