#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "device/parallel.h"
#include "ops/empty_cpu.h"
#include "ops/kernels_cpu.h"
#include "ops/pages.h"
#include "ops/scratch_cpu.h"

namespace danlu::ops::cpu {
namespace cached_attention_detail {

/// Multiplications of a piece of work that repay another thread.
constexpr int64_t kGrainProducts = int64_t{1} << 14;
/// Keys that one task reads: a long context of one sequence with few key heads is work for many
/// threads.
constexpr int64_t kPartKeys = 512;
/// Heads whose parts one thread joins.
constexpr int64_t kGrainHeads = 8;
static_assert(kPartKeys % kPageTokens == 0);

size_t unsigned_of(int64_t value) { return static_cast<size_t>(value); }

/// Where [K, kPageTokens, D] of a layer begins in a page.
template <typename T>
T* layer_of(const at::Tensor& page, int64_t layer, int64_t which) {
  return reinterpret_cast<T*>(static_cast<char*>(page.data_ptr()) +
                              (layer * page.stride(0) + which * page.stride(1)) *
                                  static_cast<int64_t>(page.element_size()));
}

void store(const at::Tensor& x_NKD, int64_t first, const CachedSequence& sequence, int64_t layer,
           int64_t which) {
  const int64_t heads = x_NKD.size(1), item = static_cast<int64_t>(x_NKD.element_size());
  const int64_t row = x_NKD.size(2) * item;
  each_page_part(sequence, sequence.length - sequence.num_new, sequence.length,
                 [&](const at::Tensor& page, int64_t place, int64_t from, int64_t count) {
                   char* to = layer_of<char>(page, layer, which) + place * row;
                   const char* begin = static_cast<const char*>(x_NKD.data_ptr());
                   for (int64_t i = 0; i < count; ++i)
                     for (int64_t head = 0; head < heads; ++head)
                       std::memcpy(to + (head * kPageTokens + i) * row,
                                   begin + ((first + from + i) * heads + head) * row,
                                   unsigned_of(row));
                 });
}

/// A new token and some of the keys that it sees, [begin, end) of its sequence.
struct Part {
  const CachedSequence* sequence;
  int64_t row;    ///< of the token in q
  int64_t place;  ///< of the token in its sequence
  int64_t begin, end;
  bool is_only;
};

/// Those of a token lie beside each other. They depend on lengths alone: any number of threads
/// gives the same bits.
std::vector<Part> parts_of(std::span<const CachedSequence> sequences, int64_t window) {
  std::vector<Part> parts;
  int64_t row = 0;
  for (const CachedSequence& sequence : sequences) {
    for (int64_t i = 0; i < sequence.num_new; ++i, ++row) {
      const int64_t place = sequence.length - sequence.num_new + i;
      const int64_t first = window > 0 ? std::max<int64_t>(0, place + 1 - window) : 0;
      for (int64_t begin = first, end; begin <= place; begin = end) {
        end = std::min(place + 1, (begin / kPartKeys + 1) * kPartKeys);
        parts.push_back({&sequence, row, place, begin, end, begin == first && end > place});
      }
    }
  }
  return parts;
}

/// What parts sum to: weighted values, whose weights are exp(score - the largest) and not divided
/// yet. [parts, Q, D + 2]: values, the largest score, the sum of weights.
class Results {
 public:
  Results(size_t parts, const at::Tensor& out_NQD)
      : out_(out_NQD),
        element_(element_of(out_NQD)),
        heads_(out_NQD.size(1)),
        dim_(out_NQD.size(2)),
        memory_(empty_cpu({static_cast<int64_t>(parts), heads_, dim_ + 2}, at::kFloat)) {}

  float* values(size_t part, int64_t head) const {
    return memory_.data_ptr<float>() + (static_cast<int64_t>(part) * heads_ + head) * (dim_ + 2);
  }
  void set_state(size_t part, int64_t head, const SoftmaxState& state) const {
    values(part, head)[dim_] = state.largest;
    values(part, head)[dim_ + 1] = state.sum;
  }
  /// The token's result from its parts [first, end): as one softmax over the keys of all of them.
  void finish(size_t first, size_t end, int64_t row, int64_t head) const {
    float largest = -std::numeric_limits<float>::infinity(), sum = 0;
    for (size_t part = first; part < end; ++part)
      largest = std::max(largest, values(part, head)[dim_]);
    float* const all = values(first, head);
    for (size_t part = first; part < end; ++part) {
      const float* const own = values(part, head);
      const float factor = std::exp(own[dim_] - largest);
      sum += factor * own[dim_ + 1];
      for (int64_t i = 0; i < dim_; ++i)
        all[i] = part == first ? factor * own[i] : all[i] + factor * own[i];
    }
    scale_row(all, unsigned_of(dim_), 1.0f / sum);
    narrow(element_, 1, unsigned_of(dim_), all, 0,
           static_cast<char*>(out_.data_ptr()) +
               (row * heads_ + head) * dim_ * static_cast<int64_t>(out_.element_size()),
           0);
  }

 private:
  const at::Tensor& out_;
  Element element_;
  int64_t heads_, dim_;
  at::Tensor memory_;
};

/// What a thread computes a task with: aligned, so that few vectors of it lie in two lines.
struct Scratch {
  ScratchMemory query, scores, values, result;
};
Scratch& scratch() {
  static thread_local Scratch memory;
  return memory;
}

/// One key head and the query heads that use it.
class HeadTask {
 public:
  HeadTask(const at::Tensor& q_NQD, int64_t kv_heads, int64_t layer,
           const AttentionOptions& options, const Results& results)
      : q_(q_NQD),
        results_(results),
        element_(element_of(q_NQD)),
        group_(q_NQD.size(1) / kv_heads),
        dim_(q_NQD.size(2)),
        layer_(layer),
        options_(options) {}

  void run(const Part& part, size_t index, int64_t kv_head) const {
    const int64_t keys = part.end - part.begin, first_head = kv_head * group_;
    const size_t width = unsigned_of(group_ * dim_);
    const int64_t offset = (part.row * q_.size(1) + first_head) * dim_;
    float* const query = scratch().query.floats(width);
    float* const scores = scratch().scores.floats(unsigned_of(group_ * keys));
    float* const values = scratch().values.floats(unsigned_of(kPageTokens * dim_));
    float* const result = scratch().result.floats(width);
    std::fill_n(result, width, 0.0f);
    widen(
        element_, 1, width,
        static_cast<const char*>(q_.data_ptr()) + offset * static_cast<int64_t>(q_.element_size()),
        width, query, width);
    each_page(part, kv_head, 0, [&](const char* k, int64_t at, size_t count) {
      dot_rows({element_, unsigned_of(group_), count, unsigned_of(dim_), query, k, scores + at,
                unsigned_of(keys)});
    });
    for (int64_t h = 0; h < group_; ++h) {
      const float slope = options_.alibi_slopes_Q.defined()
                              ? options_.alibi_slopes_Q.data_ptr<float>()[first_head + h]
                              : 0.0f;
      SoftmaxState state{-std::numeric_limits<float>::infinity(), 0};
      float* const row = scores + h * keys;
      softmax_more(Element::kF32, row, unsigned_of(keys), static_cast<float>(options_.scale), slope,
                   static_cast<float>(part.place - part.begin), &state, row);
      results_.set_state(index, first_head + h, state);
    }
    each_page(part, kv_head, 1, [&](const char* v, int64_t at, size_t count) {
      const float* wide = reinterpret_cast<const float*>(v);
      if (element_ != Element::kF32) {
        const size_t all = count * unsigned_of(dim_);
        widen(element_, 1, all, v, all, values, all);
        wide = values;
      }
      add_weighted_rows({unsigned_of(group_), count, unsigned_of(dim_), scores + at,
                         unsigned_of(keys), wide, result});
    });
    for (int64_t h = 0; h < group_; ++h) {
      std::copy_n(result + h * dim_, dim_, results_.values(index, first_head + h));
      if (part.is_only) results_.finish(index, index + 1, part.row, first_head + h);
    }
  }

 private:
  /// body(the page's keys or values of the head, which of the part's they are, how many)
  template <typename Body>
  void each_page(const Part& part, int64_t kv_head, int64_t which, const Body& body) const {
    each_page_part(
        *part.sequence, part.begin, part.end,
        [&](const at::Tensor& page, int64_t place, int64_t at, int64_t count) {
          const int64_t bytes = dim_ * static_cast<int64_t>(page.element_size());
          body(layer_of<const char>(page, layer_, which) + (kv_head * kPageTokens + place) * bytes,
               at, unsigned_of(count));
        });
  }

  const at::Tensor& q_;
  const Results& results_;
  const Element element_;
  const int64_t group_, dim_, layer_;
  const AttentionOptions& options_;
};

}  // namespace cached_attention_detail

void store_in_pages(const at::Tensor& k_NKD, const at::Tensor& v_NKD,
                    const std::vector<CachedSequence>& sequences, int64_t layer) {
  using namespace cached_attention_detail;
  const at::Tensor k = k_NKD.contiguous(), v = v_NKD.contiguous();
  int64_t first = 0;
  for (const CachedSequence& sequence : sequences) {
    store(k, first, sequence, layer, 0);
    store(v, first, sequence, layer, 1);
    first += sequence.num_new;
  }
}

at::Tensor attention_over_pages(const at::Tensor& given_NQD, int64_t kv_heads,
                                std::span<const CachedSequence> sequences, int64_t layer,
                                const AttentionOptions& given_options) {
  using namespace cached_attention_detail;
  const at::Tensor q_NQD = given_NQD.contiguous();
  const at::Tensor out_NQD = empty_cpu(q_NQD.sizes(), q_NQD.scalar_type());
  AttentionOptions options = given_options;
  if (options.alibi_slopes_Q.defined())
    options.alibi_slopes_Q = options.alibi_slopes_Q.to(at::kFloat).contiguous();
  const std::vector<Part> parts = parts_of(sequences, options.window);
  int64_t products = 0;
  for (const Part& part : parts)
    products += (part.end - part.begin) * q_NQD.size(1) * q_NQD.size(2);
  const Results results(parts.size(), out_NQD);
  const int64_t tasks = static_cast<int64_t>(parts.size()) * kv_heads;
  const int64_t grain = tasks * kGrainProducts / std::max<int64_t>(1, products) + 1;
  device::parallel_for(0, tasks, grain, [&](int64_t begin, int64_t end) {
    const HeadTask task(q_NQD, kv_heads, layer, options, results);
    for (int64_t i = begin; i < end; ++i) {
      const size_t part = unsigned_of(i / kv_heads);
      task.run(parts[part], part, i % kv_heads);
    }
  });
  for (size_t first = 0, end = 0; first < parts.size(); first = end) {
    const int64_t row = parts[first].row;
    while (end < parts.size() && parts[end].row == row) ++end;
    if (parts[first].is_only) continue;
    device::parallel_for(0, q_NQD.size(1), kGrainHeads, [&](int64_t begin, int64_t past) {
      for (int64_t head = begin; head < past; ++head) results.finish(first, end, row, head);
    });
  }
  return out_NQD;
}

}  // namespace danlu::ops::cpu
