#include "grammar/grammar.h"

#include <algorithm>

namespace danlu::grammar {
namespace {

/// Some kilobytes each, and a mask of a large vocabulary has twenty.
constexpr size_t kMaxSets = 8192, kMaxMasks = 256;
/// Places that may be looked at for one mask: what only constraints meet that fit in very many
/// ways.
constexpr size_t kMaxWork = 4'000'000;

}  // namespace

template <typename Value>
std::shared_ptr<const Value> Grammar::Recent<Value>::find(Runs::Set set) {
  const auto place = places_.find(set);
  if (place == places_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, place->second);
  return place->second->second;
}

template <typename Value>
void Grammar::Recent<Value>::keep(Runs::Set set, std::shared_ptr<const Value> value) {
  if (entries_.size() == kMaxMasks) {
    places_.erase(entries_.back().first);
    entries_.pop_back();
  }
  entries_.emplace_front(set, std::move(value));
  places_[set] = entries_.begin();
}

template <typename Value>
void Grammar::Recent<Value>::clear() {
  entries_.clear();
  places_.clear();
}

Grammar::Grammar(Automaton automaton, std::shared_ptr<const Vocabulary> vocabulary,
                 std::vector<text::TokenId> stop_ids, size_t num_ids,
                 std::vector<TokenByte> token_bytes)
    : automaton_(std::move(automaton)),
      vocabulary_(std::move(vocabulary)),
      stop_ids_(std::move(stop_ids)),
      token_bytes_(std::move(token_bytes)),
      num_words_((num_ids + 63) / 64),
      runs_(automaton_) {
  auto stops = std::make_shared<Mask>(num_words_);
  for (const text::TokenId id : stop_ids_) allow(id, *stops);
  stops_ = std::move(stops);
}

bool Grammar::is_stop(text::TokenId id) const {
  return std::find(stop_ids_.begin(), stop_ids_.end(), id) != stop_ids_.end();
}

Grammar::Place Grammar::start() const {
  const std::lock_guard lock(mutex_);
  return {age_, runs_.start(), runs_.written(runs_.start())};
}

/// The set of a place, made again where sets were forgotten since. REQUIRES: locked.
Runs::Set Grammar::set_of(Place& place) const {
  if (runs_.num_sets() > kMaxSets) {
    runs_.clear();
    masks_.clear();
    inners_.clear();
    ++age_;
  }
  runs_.set_max_work(SIZE_MAX);
  if (place.age != age_) {
    place.set = runs_.read(*place.written);
    place.age = age_;
  }
  return place.set;
}

bool Grammar::advance(Place& place, text::TokenId id) const {
  const std::lock_guard lock(mutex_);
  Runs::Set set = set_of(place);
  std::string bytes(vocabulary_->bytes(id));
  for (const TokenByte& token : token_bytes_) {
    if (token.id == id) bytes = static_cast<char>(token.byte);
  }
  for (const char c : bytes) set = runs_.step(set, static_cast<uint8_t>(c));
  if (bytes.empty() || set == Runs::kNothing) return false;
  place.set = set;
  place.written = runs_.written(set);
  return true;
}

std::shared_ptr<const Mask> Grammar::allowed(Place& place) const {
  const std::lock_guard lock(mutex_);
  const Runs::Set set = set_of(place);
  if (auto known = masks_.find(set)) return known;
  runs_.set_max_work(kMaxWork);
  auto mask = make_mask(set);
  masks_.keep(set, mask);
  return mask;
}

std::shared_ptr<const Mask> Grammar::make_mask(Runs::Set set) const {
  auto mask = std::make_shared<Mask>();
  const Runs::Set rebased = runs_.rebased(set);
  if (rebased == Runs::kNothing) {
    mask->assign(num_words_, 0);
    walk(set, 0, *mask, nullptr);
  } else {
    const auto inner = inner_of(rebased);
    *mask = inner->mask;
    const auto& nodes = vocabulary_->nodes();
    for (const uint32_t node : inner->open) {
      std::string way;
      for (uint32_t n = node; n != 0; n = nodes[n].parent) way += static_cast<char>(nodes[n].byte);
      Runs::Set at = set;
      for (size_t i = way.size(); i-- > 0 && at != Runs::kNothing;)
        at = runs_.step(at, static_cast<uint8_t>(way[i]));
      if (at != Runs::kNothing) walk(at, node, *mask, nullptr);
    }
  }
  for (const TokenByte& token : token_bytes_) {
    if (runs_.step(set, token.byte) != Runs::kNothing) allow(token.id, *mask);
  }
  const bool has_any = std::any_of(mask->begin(), mask->end(), [](uint64_t w) { return w != 0; });
  // A vocabulary may lack what must follow: the answer then ends.
  if (runs_.may_end(set) || !has_any) {
    for (const text::TokenId id : stop_ids_) allow(id, *mask);
  }
  return mask;
}

std::shared_ptr<const Grammar::Inner> Grammar::inner_of(Runs::Set rebased) const {
  if (auto known = inners_.find(rebased)) return known;
  auto inner = std::make_shared<Inner>();
  inner->mask.assign(num_words_, 0);
  walk(rebased, 0, inner->mask, &inner->open);
  inners_.keep(rebased, inner);
  return inner;
}

void Grammar::allow(std::span<const text::TokenId> ids, Mask& mask) const {
  for (const text::TokenId id : ids) allow(id, mask);
}

/// Allows the tokens at and below `node`, at which `set` was reached, as far as it goes on. Where a
/// call out of sight returns, `open` takes the node instead.
void Grammar::walk(Runs::Set set, size_t node, Mask& mask, std::vector<uint32_t>* open) const {
  const auto& nodes = vocabulary_->nodes();
  const size_t depth = nodes[node].depth, behind = nodes[node].behind;
  sets_on_way_.resize(vocabulary_->max_depth() + 1);
  sets_on_way_[depth] = set;
  allow(vocabulary_->tokens_at(node), mask);
  for (size_t n = node + 1; n < behind;) {
    const Vocabulary::Node& at = nodes[n];
    const Runs::Set next = runs_.step(sets_on_way_[at.depth - 1], at.byte);
    if (next == Runs::kNothing) {
      n = at.behind;
      continue;
    }
    if (open && runs_.returns(next)) {
      open->push_back(static_cast<uint32_t>(n));
      n = at.behind;
      continue;
    }
    sets_on_way_[at.depth] = next;
    allow(vocabulary_->tokens_at(n), mask);
    ++n;
  }
}

bool Grammar::accepts(std::string_view text) const {
  const std::lock_guard lock(mutex_);
  runs_.set_max_work(SIZE_MAX);
  Runs::Set set = runs_.start();
  for (const char c : text) set = runs_.step(set, static_cast<uint8_t>(c));
  return set != Runs::kNothing && runs_.may_end(set);
}

}  // namespace danlu::grammar
