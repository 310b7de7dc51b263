// grammar/grammar.h: an automaton beside a vocabulary: which tokens may follow which text.
#pragma once
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "grammar/automaton.h"
#include "grammar/mask_walk.h"
#include "grammar/runs.h"
#include "grammar/vocabulary.h"
#include "text/tokenizer.h"

namespace danlu::grammar {

/// A special token that the automaton knows as a byte that no UTF-8 has.
struct TokenByte {
  text::TokenId id;
  uint8_t byte;
};
/// The first of them.
inline constexpr uint8_t kFirstTokenByte = 0xF8;

/// Thread-safe.
class Grammar {
  struct Making;

 public:
  /// What one mask may cost. Patterns that fit a text in very many ways would need more.
  static constexpr uint64_t kMaxWork = 4'000'000;

  /// max_work: of one mask (tests).
  Grammar(Automaton automaton, std::shared_ptr<const Vocabulary> vocabulary,
          std::vector<text::TokenId> stop_ids, size_t num_ids, std::vector<TokenByte> token_bytes,
          uint64_t max_work = kMaxWork);

  /// Where an answer stands.
  struct Place {
    uint64_t age = 0;  ///< of the sets when `set` was taken
    Runs::Set set = Runs::kNothing;
    std::shared_ptr<const Runs::Written> written = nullptr;  ///< the set, once others are forgotten
    std::string ahead = {};                    ///< bytes that were accepted and are not read yet
    std::shared_ptr<Making> making = nullptr;  ///< its mask, until it is taken
  };
  Place start() const;
  /// False, and nothing changed, if `id` may not come.
  bool advance(Place& place, text::TokenId id) const;
  /// The same for an id of the place's mask, read by the next call of allowed().
  void advance_later(Place& place, text::TokenId id) const;
  /// Spends up to `work`, or one step of the automaton more, and takes off what it spent; null:
  /// that was not enough, and the next call goes on. One mask is made at a time, whoever asks.
  /// Errors: GrammarError where the mask would cost more than max_work.
  std::shared_ptr<const Mask> allowed(Place& place, int64_t& work) const;
  /// Stop ids alone: after the end.
  const std::shared_ptr<const Mask>& stops() const { return stops_; }
  bool is_stop(text::TokenId id) const;
  /// Places that were looked at for all answers together (tests).
  uint64_t work() const;
  /// Whether all of `text` is an answer (tests).
  bool accepts(std::string_view text) const;

 private:
  /// What a set allows by itself, whatever calls are around it.
  struct Inner {
    Mask mask;
    std::vector<uint32_t> open;  ///< nodes at which a call returns that is out of sight
  };
  /// A mask on the way.
  struct Making {
    Runs::Set set, rebased;
    std::shared_ptr<Mask> mask = nullptr;
    std::shared_ptr<Inner> inner = nullptr;         ///< while it is made
    std::shared_ptr<const Inner> around = nullptr;  ///< what the mask begins with
    std::optional<MaskWalk> walk = {};
    size_t num_opened = 0;              ///< of around->open
    std::string way = {};               ///< bytes to the next of them, the last first
    Runs::Set on_way = Runs::kNothing;  ///< what they lead to so far
    size_t num_marks = 0;               ///< of token_bytes_
    uint64_t cost = 0;
    bool is_done = false;  ///< without a mask: it cost too much
  };
  template <typename Value>
  class Recent {
   public:
    std::shared_ptr<const Value> find(Runs::Set set);
    void keep(Runs::Set set, std::shared_ptr<const Value> value);
    void clear();

   private:
    using Entry = std::pair<Runs::Set, std::shared_ptr<const Value>>;
    std::list<Entry> entries_;  ///< the last used first
    std::unordered_map<Runs::Set, typename std::list<Entry>::iterator> places_;
  };
  class Purse;

  void find_set(Place& place) const;
  void forget_sets_if_many() const;
  bool read_ahead(Place& place, Purse& purse) const;
  bool go_on(Making& making, Purse& purse) const;
  bool add_inner(Making& making, Purse& purse) const;
  bool add_returns(Making& making, Purse& purse) const;
  bool add_marks(Making& making, Purse& purse) const;
  void finish(Making& making) const;
  std::string bytes_of(text::TokenId id) const;
  [[noreturn]] void refuse_too_dear() const;

  Automaton automaton_;
  std::shared_ptr<const Vocabulary> vocabulary_;
  std::vector<text::TokenId> stop_ids_;
  std::vector<TokenByte> token_bytes_;
  size_t num_words_;
  uint64_t max_work_;
  std::shared_ptr<const Mask> stops_;
  mutable std::mutex mutex_;
  mutable Runs runs_;
  mutable uint64_t age_ = 0;
  mutable Recent<Mask> masks_;
  mutable Recent<Inner> inners_;
  mutable std::unordered_set<Runs::Set> too_dear_;  ///< whose masks cost more than max_work_
  mutable std::shared_ptr<Making> making_;  ///< the one under way; no set is forgotten meanwhile
};

}  // namespace danlu::grammar
