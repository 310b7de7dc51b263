#include "infer/kv_cache.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "arch/attention_size.h"
#include "arch/gated_delta.h"
#include "base/error.h"
#include "ops/cached_attention.h"

namespace danlu::infer {
namespace {

/// ranks: among which heads are divided; each has one at least.
ops::PageShape page_shape(const arch::ModelConfig& config, int64_t ranks) {
  const arch::KeptOfToken kept = arch::kept_of_token(config);
  // The first layer that predicts further ahead has a place after the others'.
  const int64_t ahead = config.num_predictions() > 0 ? 1 : 0;
  return {arch::count_key_layers(config) + ahead, std::max<int64_t>(1, kept.heads / ranks),
          kept.key_dim, kept.value_dim};
}

}  // namespace

ops::PageShape page_shape_of(const models::CausalLM& model) {
  return page_shape(model.config(), model.mesh().shape().tensor);
}

SequenceCache::SequenceCache(const models::CausalLM& model, int64_t max_pages)
    : SequenceCache(page_shape_of(model), model.dtype(), model.device(), max_pages) {}

SequenceCache::SequenceCache(const arch::ModelConfig& config, at::ScalarType dtype,
                             const at::Device& device, int64_t max_pages)
    : SequenceCache(page_shape(config, 1), dtype, device, max_pages) {}

SequenceCache::SequenceCache(const ops::PageShape& shape, at::ScalarType dtype,
                             const at::Device& device, int64_t max_pages)
    : device_(device), pool_(shape, dtype, device, max_pages) {}

SequenceId SequenceCache::add() {
  sequences_.emplace(next_id_, Sequence());
  return next_id_++;
}

SequenceId SequenceCache::add(std::span<const int32_t> pages, int64_t tokens) {
  Sequence sequence{tokens, {pages.begin(), pages.end()}, {}};
  for (const int32_t page : pages) pool_.hold(page);
  if (tokens % ops::kPageTokens != 0) pool_.keep(pages.back(), false);
  sequences_.emplace(next_id_, std::move(sequence));
  return next_id_++;
}

SequenceId SequenceCache::fork(SequenceId id) {
  Sequence copy = sequences_.at(id);
  // A pass that was begun and not ended may have left more.
  copy.pages.resize(static_cast<size_t>(ops::pages_for(copy.length)));
  for (const int32_t page : copy.pages) pool_.hold(page);
  sequences_.emplace(next_id_, std::move(copy));
  return next_id_++;
}

void SequenceCache::remove(SequenceId id) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end()) return;
  // The last first: of pages that are kept, what others begin with is lost last.
  std::vector<int32_t>& pages = found->second.pages;
  for (; !pages.empty(); pages.pop_back()) pool_.give_back(pages.back());
  sequences_.erase(found);
}

void SequenceCache::truncate(SequenceId id, int64_t length) {
  Sequence& sequence = sequences_.at(id);
  if (length > sequence.length)
    throw InternalError("[kv_cache] cannot truncate to more than there is");
  // A state tells nothing of the tokens before its last.
  if (length == 0) sequence.states.clear();
  if (length < sequence.length && !sequence.states.empty())
    throw InternalError("[kv_cache] linear attention keeps no state of earlier tokens");
  sequence.length = length;
  for (; std::ssize(sequence.pages) > ops::pages_for(length); sequence.pages.pop_back())
    pool_.give_back(sequence.pages.back());
}

int64_t SequenceCache::length(SequenceId id) const { return sequences_.at(id).length; }

int64_t SequenceCache::size_bytes() const { return pool_.num_held() * pool_.page_bytes(); }

/// The page that is begun, if it is written to.
std::optional<size_t> SequenceCache::page_begun(const Sequence& sequence, int64_t num_new) {
  const auto first = static_cast<size_t>(sequence.length / ops::kPageTokens);
  if (num_new == 0 || first >= sequence.pages.size()) return {};
  return first;
}

bool SequenceCache::shares_page_begun(SequenceId id) const {
  const Sequence& sequence = sequences_.at(id);
  const auto begun = page_begun(sequence, 1);
  return begun && pool_.holders(sequence.pages[*begun]) > 1;
}

int64_t SequenceCache::pages_needed(const std::vector<Growth>& batch) const {
  int64_t needed = 0;
  std::map<int32_t, int64_t> left;  // holders of a page when those before have copies of their own
  for (const auto& [id, num_new] : batch) {
    const Sequence& sequence = sequences_.at(id);
    if (const auto begun = page_begun(sequence, num_new)) {
      const int32_t page = sequence.pages[*begun];
      int64_t& holders = left.try_emplace(page, pool_.holders(page)).first->second;
      if (holders > 1) {
        --holders;
        ++needed;
      }
    }
    needed += std::max<int64_t>(
        0, ops::pages_for(sequence.length + num_new) - std::ssize(sequence.pages));
  }
  return needed;
}

void SequenceCache::make_room(Sequence& sequence, int64_t num_new) {
  // Only the page that is begun can be another's too.
  if (const auto begun = page_begun(sequence, num_new)) {
    int32_t& page = sequence.pages[*begun];
    if (pool_.holders(page) > 1) {
      const int32_t own = pool_.take().value();
      pool_.copy(page, own);
      pool_.give_back(page);
      page = own;
    }
  }
  while (std::ssize(sequence.pages) < ops::pages_for(sequence.length + num_new))
    sequence.pages.push_back(pool_.take().value());
}

std::optional<ops::Segments> SequenceCache::begin_if_room(const std::vector<Growth>& batch) {
  if (pool_.max_pages() > 0 && !pool_.has(pages_needed(batch))) return {};
  batch_ = batch;
  ops::Segments segments{{0}, {0}};
  std::vector<std::vector<int32_t>> tables;
  std::vector<int64_t> counts, lengths;
  for (const Growth& growth : batch) {
    Sequence& sequence = sequences_.at(growth.id);
    make_room(sequence, growth.num_new);
    const int64_t length = sequence.length + growth.num_new;
    segments.q_starts.push_back(segments.q_starts.back() + growth.num_new);
    segments.k_starts.push_back(segments.k_starts.back() + length);
    tables.push_back(sequence.pages);
    counts.push_back(growth.num_new);
    lengths.push_back(length);
  }
  growing_ = ops::cached_sequences(tables, std::move(counts), std::move(lengths), device_);
  return segments;
}

ops::Segments SequenceCache::begin(const std::vector<Growth>& batch) {
  std::optional<ops::Segments> segments = begin_if_room(batch);
  if (!segments) throw InternalError("[kv_cache] no page is free, and nobody has asked for room");
  return *std::move(segments);
}

void SequenceCache::end() {
  for (const Growth& growth : batch_) sequences_.at(growth.id).length += growth.num_new;
  batch_.clear();
  growing_ = {};
}

std::optional<ops::Segments> SequenceCache::begin_again(const std::vector<Span>& batch) {
  int64_t needed = 0;
  for (const Span& span : batch) {
    const int64_t pages = ops::pages_for(span.first + span.count);
    needed += std::max<int64_t>(0, pages - std::ssize(sequences_.at(span.id).pages));
  }
  if (pool_.max_pages() > 0 && !pool_.has(needed)) return {};
  ops::Segments segments{{0}, {0}};
  std::vector<std::vector<int32_t>> tables;
  std::vector<int64_t> counts, lengths;
  for (const Span& span : batch) {
    std::vector<int32_t>& pages = sequences_.at(span.id).pages;
    const int64_t length = span.first + span.count;
    while (std::ssize(pages) < ops::pages_for(length)) pages.push_back(pool_.take().value());
    segments.q_starts.push_back(segments.q_starts.back() + span.count);
    segments.k_starts.push_back(segments.k_starts.back() + length);
    tables.push_back(pages);
    counts.push_back(span.count);
    lengths.push_back(length);
  }
  growing_ = ops::cached_sequences(tables, std::move(counts), std::move(lengths), device_);
  return segments;
}

at::Tensor SequenceCache::attend(int64_t layer, const at::Tensor& q_NQD, const at::Tensor& k_NKD,
                                 const at::Tensor& v_NKD, const ops::AttentionOptions& options) {
  ops::store_in_pages(k_NKD, v_NKD, pool_.pages(), growing_, layer);
  return ops::cached_attention(q_NQD, k_NKD, v_NKD, pool_.pages(), growing_, layer, options);
}

at::Tensor SequenceCache::attend_latent(int64_t layer, const ops::LatentQueries& queries,
                                        const ops::AttentionOptions& options) {
  return ops::cached_latent_attention(queries, pool_.pages(), growing_, layer, options);
}

void SequenceCache::with_state(int64_t layer, const ops::AdvanceState& advance) {
  std::vector<at::Tensor> rows, memories;
  ops::DeltaState known;  // of a sequence that has one
  for (const Growth& growth : batch_) {
    const Sequence& sequence = sequences_.at(growth.id);
    const auto found = sequence.states.find(layer);
    // What others have computed is in pages, and a state is not.
    if (found == sequence.states.end() && sequence.length > 0)
      throw InternalError("[kv_cache] a sequence goes on without the state of linear attention");
    const ops::DeltaState state =
        found == sequence.states.end() ? ops::DeltaState() : found->second;
    if (state.rows_SKC.defined()) known = state;
    rows.push_back(state.rows_SKC);
    memories.push_back(state.memory_SHKV);
  }
  const auto joined = [](std::vector<at::Tensor> parts, const at::Tensor& like) {
    for (at::Tensor& part : parts) {
      if (!part.defined()) part = at::zeros(like.sizes(), like.options());
    }
    return parts.size() == 1 ? parts.front() : at::cat(parts, 0);
  };
  ops::DeltaState before;
  if (known.rows_SKC.defined())
    before = {joined(rows, known.rows_SKC), joined(memories, known.memory_SHKV)};
  const ops::DeltaState after = advance(before);
  for (size_t i = 0; i < batch_.size(); ++i) {
    // A copy, so that a sequence does not keep those of all others.
    const auto own = [&](const at::Tensor& all) {
      const at::Tensor part = all.narrow(0, static_cast<int64_t>(i), 1);
      return batch_.size() == 1 ? part : part.clone();
    };
    sequences_.at(batch_[i].id).states[layer] = {own(after.rows_SKC), own(after.memory_SHKV)};
  }
}

}  // namespace danlu::infer
