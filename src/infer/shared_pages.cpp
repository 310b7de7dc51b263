#include "infer/shared_pages.h"

#include <algorithm>
#include <span>

#include "arch/gated_delta.h"

namespace danlu::infer {
namespace {

PrefixIndex::Place last_place(const LiveRequest& live) {
  return live.places.empty() ? PrefixIndex::root(live.root) : live.places.back();
}

/// `count` tokens of the request's page `page`.
std::span<const text::TokenId> tokens_of_page(const LiveRequest& live, int64_t page,
                                              int64_t count) {
  return std::span(live.named)
      .subspan(static_cast<size_t>(page * ops::kPageTokens), static_cast<size_t>(count));
}

}  // namespace

SharedPages::SharedPages(const models::CausalLM& model, const EngineSettings& settings,
                         Followers* followers)
    : followers_(followers),
      keeps_states_(arch::has_gated_delta(model.config())),
      // A page has no state of linear attention, from which whoever shared it would go on.
      is_shared_(settings.prefix_caching && !settings.deterministic && !keeps_states_),
      predicts_(settings.predicted_tokens > 0),
      cache_(model, settings.max_pages) {
  cache_.pool().keep_up_to(settings.kept_pages);
  cache_.pool().on_loss([this](int32_t page) { index_.forget(page); });
  if (followers_) followers_->begin_cache(settings.max_pages, settings.kept_pages);
}

int64_t SharedPages::own_pages(const LiveRequest& live) const {
  const std::vector<int32_t>& pages = cache_.pages_of(live.sequence);
  return std::count_if(pages.begin(), pages.end(),
                       [&](int32_t page) { return cache_.pool().holders(page) == 1; });
}

int64_t SharedPages::idle_of(const std::vector<int32_t>& pages) const {
  return std::count_if(pages.begin(), pages.end(),
                       [&](int32_t page) { return cache_.pool().holders(page) == 0; });
}

PrefixIndex::Found SharedPages::beginning_of(const LiveRequest& live) const {
  if (!is_shared_ || live.reads_all()) return {};
  return index_.find(PrefixIndex::root(live.root), live.named, std::ssize(live.seen) - 1);
}

bool SharedPages::is_being_computed(const LiveRequest& live, const PrefixIndex::Found& beginning,
                                    const LiveRequests& running) const {
  if (!is_shared_ || live.reads_all()) return false;
  return std::any_of(running.begin(), running.end(), [&](const auto& item) {
    return computes_next_page_of(*item.second, live, beginning.places);
  });
}

void SharedPages::begin(LiveRequest& live, const PrefixIndex::Found& beginning) {
  live.sequence = cache_.add(beginning.pages, beginning.tokens);
  if (followers_) followers_->add_sequence(beginning.pages, beginning.tokens);
  // A last page that is not full is written to from now on.
  if (beginning.pages.size() > beginning.places.size()) index_.forget(beginning.pages.back());
  live.places = beginning.places;
}

SequenceId SharedPages::fork(SequenceId sequence) {
  const SequenceId forked = cache_.fork(sequence);
  if (followers_) followers_->fork_sequence(sequence);
  return forked;
}

void SharedPages::remove(SequenceId sequence) {
  cache_.remove(sequence);
  if (followers_) followers_->remove_sequence(sequence);
}

void SharedPages::truncate(SequenceId sequence, int64_t length) {
  cache_.truncate(sequence, length);
  if (followers_) followers_->truncate_sequence(sequence, length);
}

void SharedPages::keep(int32_t page, bool is_kept) {
  cache_.pool().keep(page, is_kept);
  if (followers_) followers_->keep_page(page, is_kept);
}

void SharedPages::discard(const LiveRequest& live) {
  if (!is_shared_) return;
  for (const int32_t page : cache_.pages_of(live.sequence)) {
    index_.forget(page);
    keep(page, /*is_kept=*/false);
  }
}

void SharedPages::note_full_pages(LiveRequest& live) {
  if (!is_shared_) return;
  const int64_t full = length(live) / ops::kPageTokens;
  const std::vector<int32_t>& pages = cache_.pages_of(live.sequence);
  for (int64_t i = std::ssize(live.places); i < full; ++i) {
    const int32_t page = pages[static_cast<size_t>(i)];
    live.places.push_back(
        index_.add(last_place(live), tokens_of_page(live, i, ops::kPageTokens), page));
    if (index_.has(page)) keep(page);
  }
}

void SharedPages::note_last_page(const LiveRequest& live) {
  // Its last token may not be computed, wrong guesses stand behind it, and the layer that guesses
  // has not seen what follows.
  const int64_t known = std::min(length(live), std::ssize(live.named)) - (predicts_ ? 1 : 0);
  const int64_t full = known / ops::kPageTokens, rest = known % ops::kPageTokens;
  if (!is_shared_ || rest <= 0 || std::ssize(live.places) != full) return;
  const int32_t page = cache_.pages_of(live.sequence)[static_cast<size_t>(full)];
  if (cache_.pool().holders(page) > 1) return;
  index_.add_part(last_place(live), tokens_of_page(live, full, rest), page);
  keep(page);
}

}  // namespace danlu::infer
