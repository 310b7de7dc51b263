#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "device/parallel.h"
#include "ops/attention.h"
#include "ops/attention_blocks_cpu.h"
#include "ops/kernels_cpu.h"

// Tiles of queries meet blocks of keys, as in FlashAttention-2 (arXiv:2307.08691): products of
// packed blocks, softmax with a running maximum, backward from the log of the sums. Where bf16 is
// multiplied as it is the weights are rounded to it for their products, their sums are not.

namespace danlu::ops::cpu {

using namespace attention_blocks;

namespace {

constexpr float kNothingSeen = -std::numeric_limits<float>::infinity();

/// What attention is computed over. Heads are strided: one is [tokens, D].
struct Inputs {
  at::Tensor q_NQD, k_MKD, v_MKD;
  Spans spans;
  float scale = 1;
  int64_t window = 0;
  std::vector<float> slopes;  ///< one per query head

  int64_t heads() const { return q_NQD.size(1); }
  int64_t kv_heads() const { return k_MKD.size(1); }
  int64_t key_dim() const { return k_MKD.size(2); }
  int64_t value_dim() const { return v_MKD.size(2); }
  Arithmetic arithmetic() const { return arithmetic_of(q_NQD.scalar_type() == at::kBFloat16); }
  Packings packings() const {
    return {Packing(arithmetic(), key_dim()), Packing(arithmetic(), value_dim())};
  }
};

/// Queries [begin, end) of a span and the keys that some of them sees; all counted in it.
struct Tile {
  Span span;
  int64_t begin, end;
  int64_t first_key, end_key;
  int64_t queries() const { return end - begin; }
};

/// Keys of the span that one of its queries sees; maybe none.
Keys seen_by(int64_t query, const Span& span, int64_t window) {
  if (!span.causal) return {0, span.k_len};
  const int64_t end = std::clamp<int64_t>(span.lead + query + 1, 0, span.k_len);
  if (window == 0) return {0, end};
  return {std::clamp<int64_t>(span.lead + query + 1 - window, 0, end), end};
}

/// What a tile costs, in pairs of a query and a key; more than none also where it meets no key.
int64_t work_of(const Tile& tile) { return tile.queries() * (1 + tile.end_key - tile.first_key); }

std::vector<Tile> tiles_of(const Span& span, int64_t window) {
  std::vector<Tile> tiles;
  for (int64_t begin = 0; begin < span.q_len; begin += kTileQueries) {
    const int64_t end = std::min(span.q_len, begin + kTileQueries);
    tiles.push_back(
        {span, begin, end, seen_by(begin, span, window).begin, seen_by(end - 1, span, window).end});
  }
  return tiles;
}

Rows rows_of(const at::Tensor& x, int64_t first_token, int64_t head) {
  const Rows whole{element_of(x), static_cast<char*>(x.data_ptr()), unsigned_of(x.stride(0))};
  const int64_t first = first_token * x.stride(0) + head * x.stride(1);
  return {whole.element, whole.data + first * static_cast<int64_t>(whole.size()), whole.token};
}

/// Spans of the same keys, which lie beside each other.
struct KeySet {
  Spans spans;
  size_t index;  ///< among the sets
  int64_t key() const { return spans.front().k; }
  int64_t count() const { return spans.front().k_len; }
  int64_t blocks() const { return (count() + kBlockKeys - 1) / kBlockKeys; }
  int64_t rows_of_block(int64_t block) const {
    return std::min(kBlockKeys, count() - block * kBlockKeys);
  }
};
std::vector<KeySet> key_sets(const Spans& spans) {
  std::vector<KeySet> sets;
  for (const Span& span : spans) {
    if (sets.empty() || sets.back().key() != span.k || sets.back().count() != span.k_len)
      sets.push_back({{}, sets.size()});
    sets.back().spans.push_back(span);
  }
  return sets;
}

int64_t work_of(const KeySet& set, int64_t window) {
  int64_t work = 0;
  for (const Span& span : set.spans)
    for (const Tile& tile : tiles_of(span, window)) work += work_of(tile);
  return work;
}

/// All blocks of keys of all heads, packed by all threads.
class PackedBlocks {
 public:
  enum Order { kTurned, kStacked };
  PackedBlocks(const Packing& packing, Order order, const at::Tensor& x_MKD,
               const std::vector<KeySet>& sets) {
    std::vector<Block> blocks;
    const auto bytes_of = [&](int64_t rows) {
      return static_cast<int64_t>(order == kTurned ? packing.turned_bytes(rows)
                                                   : packing.stacked_bytes(rows));
    };
    whole_bytes_ = bytes_of(kBlockKeys);
    for (const KeySet& set : sets) {
      starts_.push_back(head_bytes_);
      for (int64_t block = 0; block < set.blocks(); ++block) {
        blocks.push_back({&set, block});
        head_bytes_ += bytes_of(set.rows_of_block(block));
      }
    }
    memory_ = at::empty({head_bytes_ * x_MKD.size(1)}, at::kByte);
    const auto count = static_cast<int64_t>(blocks.size());
    device::parallel_each(count * x_MKD.size(1), [&](int64_t task) {
      const auto& [set, block] = blocks[unsigned_of(task % count)];
      const int64_t head = task / count;
      const Rows rows = rows_of(x_MKD, set->key() + block * kBlockKeys, head);
      char* const to = block_of(*set, head, block);
      order == kTurned ? packing.turn(rows, set->rows_of_block(block), to)
                       : packing.stack(rows, set->rows_of_block(block), to);
    });
  }
  char* block_of(const KeySet& set, int64_t head, int64_t block) const {
    return static_cast<char*>(memory_.data_ptr()) + head * head_bytes_ + starts_[set.index] +
           block * whole_bytes_;
  }

 private:
  struct Block {
    const KeySet* set;
    int64_t number;
  };

  int64_t whole_bytes_, head_bytes_ = 0;
  std::vector<int64_t> starts_;  ///< of each set, in the memory of a head
  at::Tensor memory_;
};

/// What a thread writes its intermediate blocks into.
struct Scratch {
  ScratchMemory scores, more_scores, weights, more_weights, sums, left, more_left, turned, stacked,
      more_stacked, part;
};
Scratch& scratch() {
  static thread_local Scratch memory;
  return memory;
}
float* floats(ScratchMemory& memory, int64_t count) { return memory.floats(unsigned_of(count)); }

/// Keys of block `block` that the tile meets, counted within the block.
Keys met_in_block(const Tile& tile, int64_t block) {
  const int64_t first = block * kBlockKeys;
  return {std::max<int64_t>(tile.first_key - first, 0),
          std::min<int64_t>(tile.end_key - first, kBlockKeys)};
}
/// The keys of the block that one query sees.
Keys seen_in_block(const Tile& tile, int64_t query, int64_t window, int64_t block, Keys met) {
  const Keys all = seen_by(query, tile.span, window);
  const int64_t first = block * kBlockKeys;
  return {std::clamp(all.begin - first, met.begin, met.end),
          std::clamp(all.end - first, met.begin, met.end)};
}

/// A row of weights of a block: of the groups of steps that hold met ones, what lies beside the
/// seen ones is zero.
void clear_unseen(const Packing& packing, char* row, Keys seen, Keys met) {
  const size_t size = size_of(packing.element());
  const size_t begin = packing.first_step(met.begin) * kWord;
  const size_t end = packing.steps(met.end) * kWord;
  std::fill(row + begin, row + unsigned_of(seen.begin) * size, char{0});
  std::fill(row + unsigned_of(seen.end) * size, row + end, char{0});
}

struct Forward {
  const Inputs& in;
  const Packings& packings;
  const PackedBlocks &keys, &values;
  at::Tensor out_NQD, lse_QN;
};

void forward_tile(const Forward& f, const KeySet& set, const Tile& tile, int64_t head) {
  const Inputs& in = f.in;
  const Packing& packing = f.packings.key;
  const int64_t kv_head = head / (in.heads() / in.kv_heads()), dim = in.value_dim();
  const int64_t queries = tile.queries(), first_query = tile.span.q + tile.begin;
  const size_t size = size_of(packing.element());
  const size_t weight_row = unsigned_of(kScoreRow) * size;
  float* const scores = floats(scratch().scores, kTileQueries * kScoreRow);
  char* const weights = scratch().weights.of(unsigned_of(kTileQueries) * weight_row);
  float* const sums = floats(scratch().sums, kTileQueries * dim);
  std::fill(sums, sums + queries * dim, 0.0f);
  std::vector<SoftmaxState> states(unsigned_of(queries), {kNothingSeen, 0});
  const LeftRows q =
      left_of(packing, rows_of(in.q_NQD, first_query, head), queries, scratch().left);
  for (int64_t block = tile.first_key / kBlockKeys; block * kBlockKeys < tile.end_key; ++block) {
    const Keys met = met_in_block(tile, block);
    const int64_t in_block = set.rows_of_block(block);
    score(packing, q, queries, f.keys.block_of(set, kv_head, block), met, scores);
    for (int64_t r = 0; r < queries; ++r) {
      const int64_t query = tile.begin + r;
      const Keys seen = seen_in_block(tile, query, in.window, block, met);
      char* const row = weights + unsigned_of(r) * weight_row;
      clear_unseen(packing, row, seen, met);
      if (seen.begin == seen.end) continue;
      const int64_t first = block * kBlockKeys + seen.begin;
      const float factor =
          softmax_more(packing.element(), scores + r * kScoreRow + seen.begin,
                       unsigned_of(seen.end - seen.begin), in.scale, in.slopes[unsigned_of(head)],
                       static_cast<float>(tile.span.lead + query - first), &states[unsigned_of(r)],
                       row + unsigned_of(seen.begin) * size);
      if (factor != 1.0f) scale_row(sums + r * dim, unsigned_of(dim), factor);
    }
    add_product(f.packings.value, {weights, weight_row, kWord}, queries,
                {f.values.block_of(set, kv_head, block), in_block, met}, sums, unsigned_of(dim),
                scratch().part);
  }
  const Rows out = rows_of(f.out_NQD, first_query, head);
  float* const lse = f.lse_QN.data_ptr<float>() + head * f.lse_QN.size(1) + first_query;
  for (int64_t r = 0; r < queries; ++r) {
    const SoftmaxState& state = states[unsigned_of(r)];
    const bool saw = state.sum != 0.0f;
    lse[r] = saw ? state.largest + std::log(state.sum) : kNothingSeen;
    scale_row(sums + r * dim, unsigned_of(dim), saw ? 1.0f / state.sum : 0.0f);
    narrow(out.element, 1, unsigned_of(dim), sums + r * dim, 0, out.row(r), 0);
  }
}

struct Task {
  const KeySet* set;
  Tile tile;
  int64_t work_before;  ///< of this head's tasks
};

/// The result in `type`.
PartialAttention forward_all(const Inputs& in, at::ScalarType type) {
  const Packings packings = in.packings();
  const std::vector<KeySet> sets = key_sets(in.spans);
  const PackedBlocks keys(packings.key, PackedBlocks::kTurned, in.k_MKD, sets);
  const PackedBlocks values(packings.value, PackedBlocks::kStacked, in.v_MKD, sets);
  const at::Tensor out_NQD =
      at::empty({in.q_NQD.size(0), in.heads(), in.value_dim()}, in.q_NQD.options().dtype(type));
  const at::Tensor lse_QN =
      at::empty({in.heads(), in.q_NQD.size(0)}, in.q_NQD.options().dtype(at::kFloat));
  std::vector<Task> tasks;
  int64_t met = 0, work = 0;
  for (const KeySet& set : sets) {
    for (const Span& span : set.spans) {
      met += span.q_len;
      for (const Tile& tile : tiles_of(span, in.window)) {
        tasks.push_back({&set, tile, work});
        work += work_of(tile);
      }
    }
  }
  if (met < in.q_NQD.size(0)) {
    out_NQD.zero_();
    lse_QN.fill_(kNothingSeen);
  }
  const Forward forward{in, packings, keys, values, out_NQD, lse_QN};
  if (tasks.empty()) return {out_NQD, lse_QN};
  const auto count = static_cast<int64_t>(tasks.size());
  const auto start_of = [&](int64_t task) {
    return task / count * work + tasks[unsigned_of(task % count)].work_before;
  };
  device::parallel_parts_by_work(count * in.heads(), start_of, [&](int64_t task, int64_t past) {
    const TileShapes shapes(in.arithmetic());
    for (; task < past; ++task) {
      const Task& t = tasks[unsigned_of(task % count)];
      forward_tile(forward, *t.set, t.tile, task / count);
    }
  });
  return {out_NQD, lse_QN};
}

struct Backward {
  const Inputs& in;
  const Packings& packings;
  const PackedBlocks &turned_keys, &turned_values, &keys;
  at::Tensor out_grad_NQD, lse_QN, delta_QN;
};

/// Weights and gradients of scores of a tile and a block, as left factors.
struct BlockWeights {
  char *weights, *d_scores;
  size_t row;
};

BlockWeights weights_again(const Backward& b, const Tile& tile, int64_t head, int64_t block,
                           Keys met, const float* scores, const float* d_weights) {
  const Inputs& in = b.in;
  const Packing& packing = b.packings.key;
  const size_t size = size_of(packing.element());
  const size_t row_bytes = unsigned_of(kScoreRow) * size;
  const BlockWeights result{scratch().weights.of(unsigned_of(kTileQueries) * row_bytes),
                            scratch().more_weights.of(unsigned_of(kTileQueries) * row_bytes),
                            row_bytes};
  for (int64_t r = 0; r < tile.queries(); ++r) {
    const int64_t query = tile.begin + r;
    const Keys seen = seen_in_block(tile, query, in.window, block, met);
    const size_t row = unsigned_of(r) * row_bytes, first = unsigned_of(seen.begin) * size;
    clear_unseen(packing, result.weights + row, seen, met);
    clear_unseen(packing, result.d_scores + row, seen, met);
    const int64_t at = head * b.lse_QN.size(1) + tile.span.q + query;
    const SoftmaxBackward shape{
        unsigned_of(seen.end - seen.begin),
        in.scale,
        in.slopes[unsigned_of(head)],
        static_cast<float>(tile.span.lead + query - block * kBlockKeys - seen.begin),
        b.lse_QN.data_ptr<float>()[at],
        b.delta_QN.data_ptr<float>()[at]};
    softmax_backward(packing.element(), shape, scores + r * kScoreRow + seen.begin,
                     d_weights + r * kScoreRow + seen.begin, result.weights + row + first,
                     result.d_scores + row + first);
  }
  return result;
}

/// sums [keys, D] += rows^T x, where x is stacked and rows [queries, ...] are a left factor with
/// `keys` in it.
void add_turned_product(const Packing& packing, const char* rows, size_t row_bytes, int64_t queries,
                        Keys keys, const char* stacked, const Rows& sums) {
  const size_t size = size_of(packing.element());
  const size_t width = unsigned_of(kBlockKeys);
  const Arithmetic arithmetic = packing.arithmetic();
  char* const turned =
      scratch().turned.of(left_bytes(arithmetic, unsigned_of(kTileQueries), width));
  const int64_t count = keys.end - keys.begin;
  pack_left(arithmetic,
            {packing.element(), rows + unsigned_of(keys.begin) * size, row_bytes / size, 1},
            unsigned_of(queries), unsigned_of(count), width, turned);
  add_product(packing, packed_left(arithmetic, unsigned_of(queries), width, turned), count,
              {stacked, queries, {0, queries}}, sums.f32(keys.begin), sums.token, scratch().part);
}

/// A tile of queries against all its keys: adds to the gradients of both.
void backward_tile(const Backward& b, const KeySet& set, const Tile& tile, int64_t head,
                   const AttentionGrads& grads) {
  const Inputs& in = b.in;
  const auto& [of_keys, of_values] = b.packings;
  const int64_t kv_head = head / (in.heads() / in.kv_heads());
  const int64_t queries = tile.queries(), first_query = tile.span.q + tile.begin;
  const Rows q_rows = rows_of(in.q_NQD, first_query, head),
             grad_rows = rows_of(b.out_grad_NQD, first_query, head);
  const LeftRows q = left_of(of_keys, q_rows, queries, scratch().left),
                 out_grad = left_of(of_values, grad_rows, queries, scratch().more_left);
  char* const stacked_q = scratch().stacked.of(of_keys.stacked_bytes(kTileQueries));
  char* const stacked_grad = scratch().more_stacked.of(of_values.stacked_bytes(kTileQueries));
  of_keys.stack(q_rows, queries, stacked_q);
  of_values.stack(grad_rows, queries, stacked_grad);
  float* const scores = floats(scratch().scores, kTileQueries * kScoreRow);
  float* const d_weights = floats(scratch().more_scores, kTileQueries * kScoreRow);
  const Rows dq = rows_of(grads.q_NQD, first_query, head);
  for (int64_t block = tile.first_key / kBlockKeys; block * kBlockKeys < tile.end_key; ++block) {
    const Keys met = met_in_block(tile, block);
    const int64_t in_block = set.rows_of_block(block);
    score(of_keys, q, queries, b.turned_keys.block_of(set, kv_head, block), met, scores);
    score(of_values, out_grad, queries, b.turned_values.block_of(set, kv_head, block), met,
          d_weights);
    const BlockWeights w = weights_again(b, tile, head, block, met, scores, d_weights);
    add_product(of_keys, {w.d_scores, w.row, kWord}, queries,
                {b.keys.block_of(set, kv_head, block), in_block, met}, dq.f32(0), dq.token,
                scratch().part);
    const int64_t key = set.key() + block * kBlockKeys;
    add_turned_product(of_keys, w.d_scores, w.row, queries, met, stacked_q,
                       rows_of(grads.k_MKD, key, kv_head));
    add_turned_product(of_values, w.weights, w.row, queries, met, stacked_grad,
                       rows_of(grads.v_MKD, key, kv_head));
  }
}

/// Each query head writes the gradients of its own queries alone, but those of its keys are shared
/// by a group of heads. Where sequences, counted as so many of the largest one's work, and groups
/// are too few for the processors of a large machine, parts of the groups sum apart. By shape
/// alone: any number of threads gives the same bits.
int64_t parts_of_group(const Inputs& in, const std::vector<int64_t>& work_of_set) {
  constexpr int64_t kEnough = 64;
  if (work_of_set.empty()) return 1;
  const int64_t largest = *std::max_element(work_of_set.begin(), work_of_set.end());
  const int64_t all = std::accumulate(work_of_set.begin(), work_of_set.end(), int64_t{0});
  const int64_t groups = (all + largest - 1) / largest * in.kv_heads();
  return std::clamp<int64_t>((kEnough + groups - 1) / groups, 1, in.heads() / in.kv_heads());
}

/// Queries of the same keys, of some of the heads that share a key/value head.
struct BackwardTask {
  const KeySet* set;
  int64_t first_head, end_head;
  size_t part;          ///< whose gradients of keys and values it adds to
  int64_t work_before;  ///< of all tasks
};

void run(const Backward& b, const BackwardTask& task, const std::vector<AttentionGrads>& parts) {
  for (int64_t head = task.first_head; head < task.end_head; ++head) {
    for (const Span& span : task.set->spans) {
      for (const Tile& tile : tiles_of(span, b.in.window))
        backward_tile(b, *task.set, tile, head, parts[task.part]);
    }
  }
}

AttentionGrads backward_all(const Inputs& in, const at::Tensor& out_grad_NQD,
                            const at::Tensor& lse_QN, const at::Tensor& delta_QN) {
  const Packings packings = in.packings();
  const std::vector<KeySet> sets = key_sets(in.spans);
  const PackedBlocks turned_keys(packings.key, PackedBlocks::kTurned, in.k_MKD, sets);
  const PackedBlocks turned_values(packings.value, PackedBlocks::kTurned, in.v_MKD, sets);
  const PackedBlocks keys(packings.key, PackedBlocks::kStacked, in.k_MKD, sets);
  const Backward backward{in,   packings,     turned_keys, turned_values,
                          keys, out_grad_NQD, lse_QN,      delta_QN};
  const at::TensorOptions wide = in.q_NQD.options().dtype(at::kFloat);
  const at::Tensor dq_NQD = at::zeros(in.q_NQD.sizes(), wide);
  std::vector<int64_t> work_of_set;
  for (const KeySet& set : sets) work_of_set.push_back(work_of(set, in.window));
  const int64_t count = parts_of_group(in, work_of_set), group = in.heads() / in.kv_heads();
  std::vector<AttentionGrads> parts(unsigned_of(count));
  for (AttentionGrads& part : parts)
    part = {dq_NQD, at::zeros(in.k_MKD.sizes(), wide), at::zeros(in.v_MKD.sizes(), wide)};
  std::vector<BackwardTask> tasks;
  int64_t work = 0;
  for (int64_t part = 0; part < count; ++part) {
    const int64_t first = group * part / count, end = group * (part + 1) / count;
    for (int64_t kv_head = 0; kv_head < in.kv_heads(); ++kv_head) {
      for (const KeySet& set : sets) {
        tasks.push_back(
            {&set, kv_head * group + first, kv_head * group + end, unsigned_of(part), work});
        work += work_of_set[set.index] * (end - first);
      }
    }
  }
  const auto start_of = [&](size_t task) {
    return task == tasks.size() ? work : tasks[task].work_before;
  };
  device::parallel_parts_by_work(tasks.size(), start_of, [&](size_t task, size_t past) {
    const TileShapes shapes(in.arithmetic());
    for (; task < past; ++task) run(backward, tasks[task], parts);
  });
  for (size_t part = 1; part < parts.size(); ++part) {
    parts[0].k_MKD.add_(parts[part].k_MKD);
    parts[0].v_MKD.add_(parts[part].v_MKD);
  }
  return parts[0];
}

/// Heads of a fused projection are views with other strides; rows themselves must be whole.
at::Tensor with_whole_rows(const at::Tensor& x) {
  return x.stride(2) == 1 || x.size(2) == 1 ? x : x.contiguous();
}

std::vector<float> slopes_of(const AttentionOptions& options, int64_t heads) {
  if (!options.alibi_slopes_Q.defined()) return std::vector<float>(unsigned_of(heads), 0.0f);
  const at::Tensor wide = options.alibi_slopes_Q.to(at::kFloat).contiguous();
  return {wide.data_ptr<float>(), wide.data_ptr<float>() + wide.numel()};
}

Inputs inputs_of(const at::Tensor& q_NQD, const at::Tensor& k_MKD, const at::Tensor& v_MKD,
                 const Spans& spans, const AttentionOptions& options) {
  return {with_whole_rows(q_NQD),
          with_whole_rows(k_MKD),
          with_whole_rows(v_MKD),
          spans,
          static_cast<float>(options.scale),
          options.window,
          slopes_of(options, q_NQD.size(1))};
}

/// The gradient of the result in the type that its products are made in.
at::Tensor as_factor(const Inputs& in, const at::Tensor& out_grad_NQD) {
  return with_whole_rows(
      out_grad_NQD.to(in.arithmetic() == Arithmetic::kF32 ? at::kFloat : at::kBFloat16));
}

}  // namespace

PartialAttention attention(const at::Tensor& q_NQD, const at::Tensor& k_MKD,
                           const at::Tensor& v_MKD, const Spans& spans,
                           const AttentionOptions& options, at::ScalarType result) {
  return forward_all(inputs_of(q_NQD, k_MKD, v_MKD, spans, options), result);
}

AttentionGrads attention_backward(const at::Tensor& q_NQD, const at::Tensor& k_MKD,
                                  const at::Tensor& v_MKD, const Spans& spans,
                                  const AttentionOptions& options, const at::Tensor& out_grad_NQD,
                                  const at::Tensor& lse_QN, const at::Tensor& delta_QN) {
  const Inputs in = inputs_of(q_NQD, k_MKD, v_MKD, spans, options);
  return backward_all(in, as_factor(in, out_grad_NQD), lse_QN.contiguous(), delta_QN.contiguous());
}

}  // namespace danlu::ops::cpu

namespace danlu::ops {

int64_t packed_columns(at::ScalarType type) {
  return static_cast<int64_t>(cpu::panel_columns(cpu::arithmetic_of(type == at::kBFloat16)));
}

}  // namespace danlu::ops
