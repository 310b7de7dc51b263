#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "device/parallel.h"
#include "ops/kernels_cpu.h"
#include "ops/pages.h"

namespace danlu::ops::cpu {
namespace cached_attention_detail {

/// Multiplications of a piece of work that repay another thread.
constexpr int64_t kGrainProducts = int64_t{1} << 16;

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

/// The new tokens of one sequence, one key head and the query heads that use it.
class HeadTask {
 public:
  HeadTask(const at::Tensor& q_NQD, const at::Tensor& out_NQD, int64_t kv_heads, int64_t layer,
           const AttentionOptions& options)
      : q_(q_NQD),
        out_(out_NQD),
        element_(element_of(q_NQD)),
        group_(q_NQD.size(1) / kv_heads),
        dim_(q_NQD.size(2)),
        layer_(layer),
        options_(options) {}

  /// first: of the sequence's new tokens in q.
  void run(const CachedSequence& sequence, int64_t first, int64_t kv_head) {
    for (int64_t i = 0; i < sequence.num_new; ++i) {
      const int64_t place = sequence.length - sequence.num_new + i;
      one_token(sequence, first + i, place, kv_head);
    }
  }

 private:
  void one_token(const CachedSequence& sequence, int64_t row, int64_t place, int64_t kv_head) {
    const int64_t begin =
        options_.window > 0 ? std::max<int64_t>(0, place + 1 - options_.window) : 0;
    const int64_t keys = place + 1 - begin;
    const size_t width = unsigned_of(group_ * dim_);
    const int64_t offset = (row * q_.size(1) + kv_head * group_) * dim_;
    const int64_t item = static_cast<int64_t>(q_.element_size());
    query_.resize(width);
    result_.assign(width, 0.0f);
    scores_.resize(unsigned_of(group_ * keys));
    widen(element_, 1, width, static_cast<const char*>(q_.data_ptr()) + offset * item, width,
          query_.data(), width);
    each_page(sequence, begin, place + 1, kv_head, 0, [&](const char* k, int64_t at, size_t count) {
      dot_rows({element_, unsigned_of(group_), count, unsigned_of(dim_), query_.data(), k,
                scores_.data() + at, unsigned_of(keys)});
    });
    std::vector<float> totals(unsigned_of(group_));
    for (int64_t h = 0; h < group_; ++h) {
      const float slope = options_.alibi_slopes_Q.defined()
                              ? options_.alibi_slopes_Q.data_ptr<float>()[kv_head * group_ + h]
                              : 0.0f;
      SoftmaxState state{-std::numeric_limits<float>::infinity(), 0};
      float* const row = scores_.data() + h * keys;
      softmax_more(Element::kF32, row, unsigned_of(keys), static_cast<float>(options_.scale), slope,
                   static_cast<float>(place - begin), &state, row);
      totals[unsigned_of(h)] = state.sum;
    }
    values_.resize(unsigned_of(kPageTokens * dim_));
    each_page(sequence, begin, place + 1, kv_head, 1, [&](const char* v, int64_t at, size_t count) {
      const float* wide = reinterpret_cast<const float*>(v);
      if (element_ != Element::kF32) {
        const size_t all = count * unsigned_of(dim_);
        widen(element_, 1, all, v, all, values_.data(), all);
        wide = values_.data();
      }
      add_weighted_rows({unsigned_of(group_), count, unsigned_of(dim_), scores_.data() + at,
                         unsigned_of(keys), wide, result_.data()});
    });
    for (int64_t h = 0; h < group_; ++h)
      scale_row(result_.data() + h * dim_, unsigned_of(dim_), 1.0f / totals[unsigned_of(h)]);
    narrow(element_, 1, width, result_.data(), width,
           static_cast<char*>(out_.data_ptr()) + offset * item, width);
  }

  /// body(the page's keys or values of the head, which of the seen ones they are, how many)
  template <typename Body>
  void each_page(const CachedSequence& sequence, int64_t begin, int64_t end, int64_t kv_head,
                 int64_t which, const Body& body) {
    each_page_part(
        sequence, begin, end,
        [&](const at::Tensor& page, int64_t place, int64_t at, int64_t count) {
          const int64_t bytes = dim_ * static_cast<int64_t>(page.element_size());
          body(layer_of<const char>(page, layer_, which) + (kv_head * kPageTokens + place) * bytes,
               at, unsigned_of(count));
        });
  }

  const at::Tensor &q_, out_;
  const Element element_;
  const int64_t group_, dim_, layer_;
  const AttentionOptions& options_;
  std::vector<float> query_, scores_, values_, result_;
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
  const at::Tensor out_NQD = at::empty(q_NQD.sizes(), q_NQD.options());
  AttentionOptions options = given_options;
  if (options.alibi_slopes_Q.defined())
    options.alibi_slopes_Q = options.alibi_slopes_Q.to(at::kFloat).contiguous();
  std::vector<int64_t> firsts{0};
  int64_t products = 0;
  for (const CachedSequence& sequence : sequences) {
    firsts.push_back(firsts.back() + sequence.num_new);
    products += sequence.num_new * sequence.length * q_NQD.size(1) * q_NQD.size(2) / kv_heads;
  }
  const auto count = static_cast<int64_t>(sequences.size());
  const int64_t grain =
      std::max<int64_t>(1, count * kGrainProducts / std::max<int64_t>(1, products));
  device::parallel_for(0, count * kv_heads, grain, [&](int64_t begin, int64_t end) {
    HeadTask task(q_NQD, out_NQD, kv_heads, layer, options);
    for (int64_t i = begin; i < end; ++i)
      task.run(sequences[unsigned_of(i / kv_heads)], firsts[unsigned_of(i / kv_heads)],
               i % kv_heads);
  });
  return out_NQD;
}

}  // namespace danlu::ops::cpu
