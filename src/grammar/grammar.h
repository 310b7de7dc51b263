// grammar/grammar.h: an automaton beside a vocabulary: which tokens may follow which text.
#pragma once
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "grammar/automaton.h"
#include "grammar/runs.h"
#include "grammar/vocabulary.h"
#include "text/tokenizer.h"

namespace danlu::grammar {

/// A bit for each id, as text::TokenConstraint::allowed gives them.
using Mask = std::vector<uint64_t>;

/// A special token that the automaton knows as a byte that no UTF-8 has.
struct TokenByte {
  text::TokenId id;
  uint8_t byte;
};
/// The first of them.
inline constexpr uint8_t kFirstTokenByte = 0xF8;

/// Thread-safe.
class Grammar {
 public:
  Grammar(Automaton automaton, std::shared_ptr<const Vocabulary> vocabulary,
          std::vector<text::TokenId> stop_ids, size_t num_ids, std::vector<TokenByte> token_bytes);

  /// Where an answer stands.
  struct Place {
    uint64_t age = 0;  ///< of the sets when `set` was taken
    Runs::Set set = Runs::kNothing;
    std::shared_ptr<const Runs::Written> written = nullptr;  ///< the set, once others are forgotten
  };
  Place start() const;
  /// False, and nothing changed, if `id` may not come.
  bool advance(Place& place, text::TokenId id) const;
  std::shared_ptr<const Mask> allowed(Place& place) const;
  /// Stop ids alone: after the end.
  const std::shared_ptr<const Mask>& stops() const { return stops_; }
  bool is_stop(text::TokenId id) const;
  /// Whether all of `text` is an answer (tests).
  bool accepts(std::string_view text) const;

 private:
  /// What a set allows by itself, whatever calls are around it.
  struct Inner {
    Mask mask;
    std::vector<uint32_t> open;  ///< nodes at which a call returns that is out of sight
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

  Runs::Set set_of(Place& place) const;
  std::shared_ptr<const Mask> make_mask(Runs::Set set) const;
  std::shared_ptr<const Inner> inner_of(Runs::Set rebased) const;
  void walk(Runs::Set set, size_t node, Mask& mask, std::vector<uint32_t>* open) const;
  void allow(std::span<const text::TokenId> ids, Mask& mask) const;
  static void allow(text::TokenId id, Mask& mask) { mask[id / 64] |= uint64_t{1} << (id % 64); }

  Automaton automaton_;
  std::shared_ptr<const Vocabulary> vocabulary_;
  std::vector<text::TokenId> stop_ids_;
  std::vector<TokenByte> token_bytes_;
  size_t num_words_;
  std::shared_ptr<const Mask> stops_;
  mutable std::mutex mutex_;
  mutable Runs runs_;
  mutable uint64_t age_ = 0;
  mutable Recent<Mask> masks_;
  mutable Recent<Inner> inners_;
  mutable std::vector<Runs::Set> sets_on_way_;
};

}  // namespace danlu::grammar
