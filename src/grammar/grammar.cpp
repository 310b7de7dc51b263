#include "grammar/grammar.h"

#include <algorithm>
#include <utility>

namespace danlu::grammar {
namespace {

/// Some kilobytes each, and a mask of a large vocabulary has twenty.
constexpr size_t kMaxSets = 8192, kMaxMasks = 256;

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
                 std::vector<TokenByte> token_bytes, uint64_t max_work)
    : automaton_(std::move(automaton)),
      vocabulary_(std::move(vocabulary)),
      stop_ids_(std::move(stop_ids)),
      token_bytes_(std::move(token_bytes)),
      num_words_((num_ids + 63) / 64),
      max_work_(max_work),
      runs_(automaton_) {
  auto stops = std::make_shared<Mask>(num_words_);
  allow(stop_ids_, *stops);
  stops_ = std::move(stops);
}

bool Grammar::is_stop(text::TokenId id) const {
  return std::find(stop_ids_.begin(), stop_ids_.end(), id) != stop_ids_.end();
}

Grammar::Place Grammar::start() const {
  const std::lock_guard lock(mutex_);
  return {age_, runs_.start(), runs_.written(runs_.start())};
}

/// What one call may spend: places that are looked at, and nodes, which cost less.
class Grammar::Purse {
 public:
  Purse(const Runs& runs, int64_t& work)
      : runs_(runs),
        work_(work),
        given_(static_cast<uint64_t>(std::max<int64_t>(work, 0))),
        before_(runs.work()) {}
  ~Purse() { work_ -= static_cast<int64_t>(spent()); }
  Purse(const Purse&) = delete;
  Purse& operator=(const Purse&) = delete;

  uint64_t spent() const { return runs_.work() - before_ + num_nodes_ / kNodesPerPlace; }
  bool is_empty() const { return spent() >= std::min(given_, cap_); }
  /// A node is looked at. Whether that empties it.
  bool visit() {
    ++num_nodes_;
    return is_empty();
  }
  /// No more than so much from here on, until it is lifted.
  void cap(uint64_t more) { cap_ = spent() + more; }
  void lift_cap() { cap_ = UINT64_MAX; }

 private:
  static constexpr uint64_t kNodesPerPlace = 16;
  const Runs& runs_;
  int64_t& work_;
  const uint64_t given_, before_;
  uint64_t num_nodes_ = 0, cap_ = UINT64_MAX;
};

void Grammar::forget_sets_if_many() const {
  if (runs_.num_sets() <= kMaxSets || making_) return;
  runs_.clear();
  masks_.clear();
  inners_.clear();
  too_dear_.clear();
  ++age_;
}

/// Makes the set of a place again where sets were forgotten since. REQUIRES: locked.
void Grammar::find_set(Place& place) const {
  forget_sets_if_many();
  if (place.age == age_) return;
  place.set = runs_.read(*place.written);
  place.age = age_;
}

std::string Grammar::bytes_of(text::TokenId id) const {
  for (const TokenByte& token : token_bytes_) {
    if (token.id == id) return {static_cast<char>(token.byte)};
  }
  return std::string(vocabulary_->bytes(id));
}

bool Grammar::advance(Place& place, text::TokenId id) const {
  const std::lock_guard lock(mutex_);
  find_set(place);
  const std::string bytes = place.ahead + bytes_of(id);
  Runs::Set set = place.set;
  for (const char c : bytes) set = runs_.step(set, static_cast<uint8_t>(c));
  if (bytes.size() == place.ahead.size() || set == Runs::kNothing) return false;
  place.set = set;
  place.written = runs_.written(set);
  place.ahead.clear();
  place.making.reset();
  return true;
}

void Grammar::advance_later(Place& place, text::TokenId id) const {
  place.ahead += bytes_of(id);
  place.making.reset();
}

/// True: the place stands behind all bytes that it accepted.
bool Grammar::read_ahead(Place& place, Purse& purse) const {
  if (place.ahead.empty()) return true;
  size_t read = 0;
  while (read < place.ahead.size() && !purse.is_empty()) {
    place.set = runs_.step(place.set, static_cast<uint8_t>(place.ahead[read++]));
    if (place.set == Runs::kNothing)
      throw InternalError("[grammar] a token came that was not allowed");
  }
  place.ahead.erase(0, read);
  place.written = runs_.written(place.set);
  return place.ahead.empty();
}

void Grammar::refuse_too_dear() const {
  throw GrammarError(
      tr("this pattern or schema fits texts in too many ways: which tokens may come next would "
         "take more than {} steps to find",
         max_work_),
      tr("repeat less inside of repetitions, and give parts that may begin alike "
         "other beginnings"));
}

std::shared_ptr<const Mask> Grammar::allowed(Place& place, int64_t& work) const {
  const std::lock_guard lock(mutex_);
  Purse purse(runs_, work);
  while (true) {
    if (place.making && place.making->is_done) {
      const auto made = std::exchange(place.making, nullptr);
      if (made->mask) return made->mask;
      refuse_too_dear();
    }
    if (making_ && making_.use_count() == 1) making_.reset();  // nobody waits for it any more
    if (making_) {
      if (!go_on(*making_, purse)) return nullptr;
      making_.reset();
      forget_sets_if_many();
      continue;
    }
    find_set(place);
    if (!read_ahead(place, purse)) return nullptr;
    if (auto known = masks_.find(place.set)) return known;
    if (too_dear_.contains(place.set)) refuse_too_dear();
    if (purse.is_empty()) return nullptr;
    making_ = std::make_shared<Making>();
    making_->set = place.set;
    making_->rebased = runs_.rebased(place.set);
    place.making = making_;
  }
}

/// True: it is done, or costs too much.
bool Grammar::go_on(Making& making, Purse& purse) const {
  const uint64_t before = purse.spent();
  purse.cap(max_work_ - making.cost);
  const bool is_made =
      add_inner(making, purse) && add_returns(making, purse) && add_marks(making, purse);
  purse.lift_cap();
  making.cost += std::min(purse.spent() - before, max_work_ - making.cost);
  if (is_made) {
    finish(making);
  } else if (making.cost == max_work_) {
    making.mask = nullptr;
    making.is_done = true;
    too_dear_.insert(making.set);
  }
  return making.is_done;
}

/// What the set allows whatever calls are around it, which is kept by itself; or all that it allows
/// where that is one and the same.
bool Grammar::add_inner(Making& making, Purse& purse) const {
  if (making.mask) return true;
  const bool is_part = making.rebased != Runs::kNothing;
  if (is_part) making.around = inners_.find(making.rebased);
  if (!making.around) {
    if (!making.inner) {
      making.inner = std::make_shared<Inner>();
      making.inner->mask.assign(num_words_, 0);
      allow(vocabulary_->tokens_at(0), making.inner->mask);
      making.walk.emplace(*vocabulary_, is_part ? making.rebased : making.set, 0);
    }
    Inner& inner = *making.inner;
    if (!making.walk->go_on(runs_, inner.mask, is_part ? &inner.open : nullptr,
                            [&] { return purse.visit(); })) {
      return false;
    }
    making.walk.reset();
    if (is_part) inners_.keep(making.rebased, making.inner);
    making.around = making.inner;
  }
  making.mask = std::make_shared<Mask>(making.around->mask);
  return true;
}

/// The tokens by which a call out of sight returns.
bool Grammar::add_returns(Making& making, Purse& purse) const {
  const std::vector<uint32_t>& open = making.around->open;
  const auto& nodes = vocabulary_->nodes();
  for (; making.num_opened < open.size(); ++making.num_opened) {
    const uint32_t node = open[making.num_opened];
    if (!making.walk) {
      if (making.way.empty()) {
        for (uint32_t n = node; n != 0; n = nodes[n].parent)
          making.way += static_cast<char>(nodes[n].byte);
        making.on_way = making.set;
      }
      while (!making.way.empty() && making.on_way != Runs::kNothing) {
        if (purse.is_empty()) return false;
        making.on_way = runs_.step(making.on_way, static_cast<uint8_t>(making.way.back()));
        making.way.pop_back();
      }
      making.way.clear();
      if (making.on_way == Runs::kNothing) continue;
      allow(vocabulary_->tokens_at(node), *making.mask);
      making.walk.emplace(*vocabulary_, making.on_way, node);
    }
    if (!making.walk->go_on(runs_, *making.mask, nullptr, [&] { return purse.visit(); }))
      return false;
    making.walk.reset();
  }
  return true;
}

bool Grammar::add_marks(Making& making, Purse& purse) const {
  for (; making.num_marks < token_bytes_.size(); ++making.num_marks) {
    if (purse.is_empty()) return false;
    const TokenByte& token = token_bytes_[making.num_marks];
    if (runs_.step(making.set, token.byte) != Runs::kNothing) allow(token.id, *making.mask);
  }
  return true;
}

void Grammar::finish(Making& making) const {
  Mask& mask = *making.mask;
  const bool has_any = std::any_of(mask.begin(), mask.end(), [](uint64_t w) { return w != 0; });
  // A vocabulary may lack what must follow: the answer then ends.
  if (runs_.may_end(making.set) || !has_any) allow(stop_ids_, mask);
  masks_.keep(making.set, making.mask);
  making.is_done = true;
}

uint64_t Grammar::work() const {
  const std::lock_guard lock(mutex_);
  return runs_.work();
}

bool Grammar::accepts(std::string_view text) const {
  const std::lock_guard lock(mutex_);
  Runs::Set set = runs_.start();
  for (const char c : text) set = runs_.step(set, static_cast<uint8_t>(c));
  return set != Runs::kNothing && runs_.may_end(set);
}

}  // namespace danlu::grammar
