#include "infer/kv_cache.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <set>

#include "base/error.h"

namespace danlu::infer {

SequenceCache::SequenceCache(const arch::ModelConfig& config, at::ScalarType dtype,
                             const at::Device& device)
    : page_shape_{config.num_layers, 2, config.num_kv_heads, ops::kPageTokens, config.head_dim},
      options_(at::TensorOptions(dtype).device(device)) {}

SequenceId SequenceCache::add() {
  sequences_.emplace(next_id_, Sequence());
  return next_id_++;
}

SequenceId SequenceCache::fork(SequenceId id) {
  Sequence copy = sequences_.at(id);
  sequences_.emplace(next_id_, std::move(copy));
  return next_id_++;
}

void SequenceCache::remove(SequenceId id) { sequences_.erase(id); }

void SequenceCache::truncate(SequenceId id, int64_t length) {
  Sequence& sequence = sequences_.at(id);
  if (length > sequence.length)
    throw InternalError("[kv_cache] cannot truncate to more than there is");
  sequence.length = length;
  sequence.pages.resize(static_cast<size_t>((length + ops::kPageTokens - 1) / ops::kPageTokens));
}

int64_t SequenceCache::length(SequenceId id) const { return sequences_.at(id).length; }

int64_t SequenceCache::size_bytes() const {
  std::set<const void*> pages;
  for (const auto& [id, sequence] : sequences_)
    for (const at::Tensor& page : sequence.pages) pages.insert(page.unsafeGetTensorImpl());
  int64_t bytes = static_cast<int64_t>(options_.dtype().itemsize());
  for (const int64_t size : page_shape_) bytes *= size;
  return bytes * static_cast<int64_t>(pages.size());
}

void SequenceCache::make_room(Sequence& sequence, int64_t num_new) {
  const auto first = static_cast<size_t>(sequence.length / ops::kPageTokens);
  // Only the page that is begun can be another's too.
  if (num_new > 0 && first < sequence.pages.size() && sequence.pages[first].use_count() > 1) {
    const at::Tensor own = at::empty(page_shape_, options_);
    own.copy_(sequence.pages[first]);
    sequence.pages[first] = own;
  }
  const int64_t pages = (sequence.length + num_new + ops::kPageTokens - 1) / ops::kPageTokens;
  while (static_cast<int64_t>(sequence.pages.size()) < pages)
    sequence.pages.push_back(at::empty(page_shape_, options_));
}

ops::Segments SequenceCache::begin(const std::vector<Growth>& batch) {
  batch_ = batch;
  growing_.clear();
  ops::Segments segments{{0}, {0}};
  for (const Growth& growth : batch) {
    Sequence& sequence = sequences_.at(growth.id);
    make_room(sequence, growth.num_new);
    const int64_t length = sequence.length + growth.num_new;
    segments.q_starts.push_back(segments.q_starts.back() + growth.num_new);
    segments.k_starts.push_back(segments.k_starts.back() + length);
    growing_.push_back({sequence.pages, growth.num_new, length});
  }
  return segments;
}

void SequenceCache::end() {
  for (const Growth& growth : batch_) sequences_.at(growth.id).length += growth.num_new;
  batch_.clear();
  growing_.clear();
}

at::Tensor SequenceCache::attend(int64_t layer, const at::Tensor& q_NQD, const at::Tensor& k_NKD,
                                 const at::Tensor& v_NKD, const ops::AttentionOptions& options) {
  ops::store_in_pages(k_NKD, v_NKD, growing_, layer);
  return ops::cached_attention(q_NQD, k_NKD, v_NKD, growing_, layer, options);
}

}  // namespace danlu::infer
