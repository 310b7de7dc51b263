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
#include "ops/unsigned_of.h"

namespace danlu::ops::cpu {
namespace {

/// Multiplications of a piece of work that repay another thread.
constexpr int64_t kGrainProducts = int64_t{1} << 14;
/// Keys that one task reads: a long context of one sequence with few key heads is work for many
/// threads.
constexpr int64_t kPartKeys = 512;
/// Query heads that one task has: those of a latent all use one key.
constexpr int64_t kTaskHeads = 32;
/// Heads whose parts one thread joins.
constexpr int64_t kGrainHeads = 8;
static_assert(kPartKeys % kPageTokens == 0);

/// Where the keys (which = 0) or values (1) of a layer begin in each page: [K, kPageTokens, D].
class LayerPages {
 public:
  LayerPages(const Pages& pages, int64_t layer, int64_t which)
      : per_slab_(pages.per_slab),
        item_(static_cast<int64_t>(pages.slabs.front().element_size())),
        page_bytes_(pages.shape.elements() * item_) {
    const int64_t keys = pages.shape.heads * kPageTokens * pages.shape.key_dim;
    const int64_t first = layer * pages.shape.layer_elements() + which * keys;
    for (const at::Tensor& slab : pages.slabs)
      slabs_.push_back(static_cast<char*>(slab.data_ptr()) + first * item_);
  }
  char* operator[](int64_t page) const {
    if (slabs_.size() == 1) return slabs_[0] + page * page_bytes_;
    return slabs_[unsigned_of(page / per_slab_)] + page % per_slab_ * page_bytes_;
  }
  int64_t item() const { return item_; }

 private:
  int64_t per_slab_, item_, page_bytes_;
  std::vector<char*> slabs_;
};

const int32_t* pages_of_sequence(const CachedSequences& sequences, size_t sequence) {
  return sequences.tables_BP.data_ptr<int32_t>() +
         static_cast<int64_t>(sequence) * sequences.tables_BP.size(1);
}

void store(const at::Tensor& x_NKD, int64_t first, const LayerPages& pages,
           const CachedSequences& sequences, size_t sequence) {
  const int64_t heads = x_NKD.size(1), row = x_NKD.size(2) * pages.item();
  const int64_t length = sequences.lengths[sequence];
  if (row == 0) return;  // the values of a latent
  each_page_part(pages_of_sequence(sequences, sequence), length - sequences.num_new[sequence],
                 length, [&](int64_t page, int64_t place, int64_t from, int64_t count) {
                   char* to = pages[page] + place * row;
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
  const int32_t* table;
  int64_t row;    ///< of the token in q
  int64_t place;  ///< of the token in its sequence
  int64_t begin, end;
  bool is_only;
};

/// The parts of a token lie beside each other. They depend on lengths alone: any number of threads
/// gives the same bits.
std::vector<Part> parts_of(const CachedSequences& sequences, int64_t window) {
  std::vector<Part> parts;
  int64_t row = 0;
  for (size_t sequence = 0; sequence < sequences.lengths.size(); ++sequence) {
    const int64_t num_new = sequences.num_new[sequence];
    const int32_t* const table = pages_of_sequence(sequences, sequence);
    for (int64_t i = 0; i < num_new; ++i, ++row) {
      const int64_t place = sequences.lengths[sequence] - num_new + i;
      const int64_t first = window > 0 ? std::max<int64_t>(0, place + 1 - window) : 0;
      for (int64_t begin = first, end; begin <= place; begin = end) {
        end = std::min(place + 1, (begin / kPartKeys + 1) * kPartKeys);
        parts.push_back({table, row, place, begin, end, begin == first && end > place});
      }
    }
  }
  return parts;
}

/// What parts sum to: weighted values, whose weights are exp(score - the largest) and not divided
/// yet. [parts, Q, Dv + 2]: values, the largest score, the sum of weights.
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
struct CachedScratch {
  ScratchMemory query, scores, values, result;
};
CachedScratch& cached_scratch() {
  static thread_local CachedScratch memory;
  return memory;
}

/// The width of what is summed: where pages have no values, a latent's rows are both.
int64_t summed_dim(const PageShape& shape) {
  return shape.value_dim > 0 ? shape.value_dim : shape.key_dim;
}

/// One key head and some of the query heads that use it.
class HeadTask {
 public:
  HeadTask(const at::Tensor& q_NQD, const Pages& pages, int64_t layer,
           const AttentionOptions& options, const Results& results)
      : q_(q_NQD),
        results_(results),
        element_(element_of(q_NQD)),
        group_(q_NQD.size(1) / pages.shape.heads),
        splits_((group_ + kTaskHeads - 1) / kTaskHeads),
        key_dim_(pages.shape.key_dim),
        value_dim_(summed_dim(pages.shape)),
        keys_(pages, layer, 0),
        values_(pages, layer, pages.shape.value_dim > 0 ? 1 : 0),
        options_(options) {}

  /// How many tasks a part has.
  int64_t count() const { return q_.size(1) / group_ * splits_; }

  void run(const Part& part, size_t index, int64_t number) const {
    const int64_t kv_head = number / splits_, begin = number % splits_ * kTaskHeads;
    const int64_t heads = std::min(kTaskHeads, group_ - begin);
    const int64_t keys = part.end - part.begin, first_head = kv_head * group_ + begin;
    const size_t width = unsigned_of(heads * key_dim_);
    const size_t result_width = unsigned_of(heads * value_dim_);
    const int64_t offset = (part.row * q_.size(1) + first_head) * key_dim_;
    float* const query = cached_scratch().query.floats(width);
    float* const scores = cached_scratch().scores.floats(unsigned_of(heads * keys));
    float* const values = cached_scratch().values.floats(unsigned_of(kPageTokens * value_dim_));
    float* const result = cached_scratch().result.floats(result_width);
    std::fill_n(result, result_width, 0.0f);
    widen(
        element_, 1, width,
        static_cast<const char*>(q_.data_ptr()) + offset * static_cast<int64_t>(q_.element_size()),
        width, query, width);
    each_page(part, kv_head, keys_, key_dim_, [&](const char* k, int64_t at, size_t count) {
      dot_rows({element_, unsigned_of(heads), count, unsigned_of(key_dim_), query, k, scores + at,
                unsigned_of(keys)});
    });
    for (int64_t h = 0; h < heads; ++h) {
      const float slope = options_.alibi_slopes_Q.defined()
                              ? options_.alibi_slopes_Q.data_ptr<float>()[first_head + h]
                              : 0.0f;
      SoftmaxState state{-std::numeric_limits<float>::infinity(), 0};
      float* const row = scores + h * keys;
      softmax_more(Element::kF32, row, unsigned_of(keys), static_cast<float>(options_.scale), slope,
                   static_cast<float>(part.place - part.begin), &state, row);
      results_.set_state(index, first_head + h, state);
    }
    each_page(part, kv_head, values_, value_dim_, [&](const char* v, int64_t at, size_t count) {
      const float* wide = reinterpret_cast<const float*>(v);
      if (element_ != Element::kF32) {
        const size_t all = count * unsigned_of(value_dim_);
        widen(element_, 1, all, v, all, values, all);
        wide = values;
      }
      add_weighted_rows({unsigned_of(heads), count, unsigned_of(value_dim_), scores + at,
                         unsigned_of(keys), wide, result});
    });
    for (int64_t h = 0; h < heads; ++h) {
      std::copy_n(result + h * value_dim_, value_dim_, results_.values(index, first_head + h));
      if (part.is_only) results_.finish(index, index + 1, part.row, first_head + h);
    }
  }

 private:
  /// body(the page's keys or values of the head, which of the part's they are, how many)
  template <typename Body>
  void each_page(const Part& part, int64_t kv_head, const LayerPages& pages, int64_t dim,
                 const Body& body) const {
    each_page_part(part.table, part.begin, part.end,
                   [&](int64_t page, int64_t place, int64_t at, int64_t count) {
                     const int64_t row = kv_head * kPageTokens + place;
                     body(pages[page] + row * dim * pages.item(), at, unsigned_of(count));
                   });
  }

  const at::Tensor& q_;
  const Results& results_;
  const Element element_;
  const int64_t group_, splits_, key_dim_, value_dim_;
  const LayerPages keys_, values_;
  const AttentionOptions& options_;
};

}  // namespace

void store_in_pages(const at::Tensor& k_NKD, const at::Tensor& v_NKD, const Pages& pages,
                    const CachedSequences& sequences, int64_t layer) {
  if (k_NKD.size(0) == 0) return;
  const at::Tensor k = k_NKD.contiguous(), v = v_NKD.contiguous();
  const LayerPages keys(pages, layer, 0), values(pages, layer, 1);
  int64_t first = 0;
  for (size_t sequence = 0; sequence < sequences.lengths.size(); ++sequence) {
    store(k, first, keys, sequences, sequence);
    store(v, first, values, sequences, sequence);
    first += sequences.num_new[sequence];
  }
}

at::Tensor attention_over_pages(const at::Tensor& given_NQD, const Pages& pages,
                                const CachedSequences& sequences, int64_t layer,
                                const AttentionOptions& given_options) {
  const at::Tensor q_NQD = given_NQD.contiguous();
  const at::Tensor out_NQD =
      empty_cpu({q_NQD.size(0), q_NQD.size(1), summed_dim(pages.shape)}, q_NQD.scalar_type());
  AttentionOptions options = given_options;
  if (options.alibi_slopes_Q.defined())
    options.alibi_slopes_Q = options.alibi_slopes_Q.to(at::kFloat).contiguous();
  const std::vector<Part> parts = parts_of(sequences, options.window);
  int64_t products = 0;
  for (const Part& part : parts)
    products += (part.end - part.begin) * q_NQD.size(1) * q_NQD.size(2);
  const Results results(parts.size(), out_NQD);
  const HeadTask task(q_NQD, pages, layer, options, results);
  const int64_t tasks = static_cast<int64_t>(parts.size()) * task.count();
  const int64_t grain = tasks * kGrainProducts / std::max<int64_t>(1, products) + 1;
  device::parallel_for(0, tasks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const size_t part = unsigned_of(i / task.count());
      task.run(parts[part], part, i % task.count());
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
