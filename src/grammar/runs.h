// grammar/runs.h: the states that an automaton with calls can be in after some bytes.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "grammar/automaton.h"

namespace danlu::grammar {

/// A set of places, each a state with the calls around it, under a number. Sets are made when they
/// are first reached, and with them the ways between them. Not thread-safe.
class Runs {
 public:
  using Set = int32_t;
  static constexpr Set kNothing = -1;  ///< no text begins so

  explicit Runs(const Automaton& automaton);

  Set start() const { return start_; }
  /// The set after `byte` more. A set that would need more than kMaxPlaces places has the first of
  /// them: then less than the language is allowed, never more.
  Set step(Set set, uint8_t byte);
  /// A text may end here.
  bool may_end(Set set) const { return sets_[set].may_end; }
  /// Places that returned from the call that rebased() took for the outermost.
  bool returns(Set set) const { return sets_[set].returns; }

  /// The same set with the calls that all its places share put out of sight, so that sets that
  /// differ in these alone are one; kNothing where they share none, or might nest too deep.
  Set rebased(Set set);

  /// What a set is, in a form that clear() leaves valid.
  struct Written {
    struct Place {
      State state;
      std::vector<State> backs;  ///< where calls return to, the innermost first
    };
    std::vector<Place> places;
    bool may_end = false;
  };
  /// REQUIRES: not a rebased set.
  std::shared_ptr<const Written> written(Set set);
  Set read(const Written& written);

  /// Forgets all sets but the first; their numbers are no longer valid.
  void clear();
  size_t num_sets() const { return sets_.size(); }
  /// Places that were looked at so far: what all calls together have cost. One step looks at
  /// kMaxPlaces + kMaxFollowed at most.
  uint64_t work() const { return work_; }

 private:
  static constexpr size_t kMaxPlaces = 1024, kMaxFollowed = 1 << 16;
  static constexpr Set kUnknown = -2;
  struct Place {
    State state;
    uint32_t stack;
    auto operator<=>(const Place&) const = default;
  };
  /// A call that has not returned: where it returns to, and the one around it.
  struct Frame {
    State back;
    uint32_t around;
    uint32_t depth;
  };
  struct Reached {
    std::vector<Place> places;  ///< with byte edges; sorted
    bool may_end = false, returns = false;
    std::unique_ptr<std::array<Set, 256>> next = nullptr;
    std::shared_ptr<const Written> written = nullptr;
  };

  void follow(std::vector<Place>& todo, Reached& out);
  Set number_of(Reached reached);
  uint32_t frame(State back, uint32_t around, uint32_t depth);
  uint32_t outermost_at(uint32_t depth);
  bool is_outermost(uint32_t stack) const { return frames_[stack].around == stack; }
  uint32_t shared_frame(std::span<const Place> places) const;
  uint32_t moved(uint32_t stack, uint32_t from, uint32_t to);

  const Automaton& automaton_;
  std::vector<Frame> frames_;
  std::unordered_map<uint64_t, uint32_t> frame_of_;
  std::unordered_map<uint32_t, uint32_t> outermost_;  ///< by depth, of rebased sets
  std::vector<Reached> sets_;
  std::unordered_multimap<uint64_t, Set> set_of_hash_;
  Set start_ = kNothing;
  uint64_t work_ = 0;
};

}  // namespace danlu::grammar
