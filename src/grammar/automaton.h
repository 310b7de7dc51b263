// grammar/automaton.h: the texts of a language as a machine over bytes that may call itself.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "grammar/char_set.h"

namespace danlu::grammar {

/// A constraint that cannot be followed: what of it, and where.
class GrammarError : public UsageError {
 public:
  using UsageError::UsageError;
};

using State = uint32_t;
/// A part that others call: its texts lead from `begin` to `end`. No edge leaves `end`.
struct Rule {
  State begin = 0, end = 0;
};

/// How deep calls may be inside one another while a text is read.
inline constexpr uint32_t kMaxCalls = 160;

/// How characters are spelled.
enum class Spelling {
  kPlain,  ///< in UTF-8
  kJson,   ///< inside a JSON string: escaped where they must be, one way each
  // The same where tags stand around the text, which it must not hold.
  kTagged,      ///< without '<'
  kTaggedJson,  ///< '<' is escaped
};
inline bool is_json(Spelling spelling) {
  return spelling == Spelling::kJson || spelling == Spelling::kTaggedJson;
}

/// Built once, then only read. From each state that can be reached some text leads to the end
/// within kMaxCalls.
class Automaton {
 public:
  struct ByteEdge {
    uint8_t first, last;
    State to;
  };
  struct Call {
    State begin, back;
  };
  std::span<const ByteEdge> bytes(State s) const { return part(bytes_, byte_begin_, s); }
  std::span<const State> epsilons(State s) const { return part(epsilons_, epsilon_begin_, s); }
  std::span<const Call> calls(State s) const { return part(calls_, call_begin_, s); }
  bool is_end(State s) const { return is_end_[s]; }
  /// Calls inside one another that the shortest-nested way from `s` to its rule's end takes.
  uint32_t calls_needed(State s) const { return calls_needed_[s]; }
  uint32_t most_calls_needed() const { return most_calls_needed_; }
  State begin() const { return begin_; }
  size_t size() const { return is_end_.size(); }

 private:
  friend class AutomatonBuilder;
  template <typename T>
  static std::span<const T> part(const std::vector<T>& all, const std::vector<uint32_t>& begins,
                                 State s) {
    return std::span(all).subspan(begins[s], begins[s + 1] - begins[s]);
  }
  std::vector<ByteEdge> bytes_;
  std::vector<State> epsilons_;
  std::vector<Call> calls_;
  std::vector<uint32_t> byte_begin_, epsilon_begin_, call_begin_, calls_needed_;
  std::vector<bool> is_end_;
  uint32_t most_calls_needed_ = 0;
  State begin_ = 0;
};

/// Every function adds ways from `from` to `to`. Errors: GrammarError beyond kMaxStates states or
/// as many edges.
class AutomatonBuilder {
 public:
  static constexpr size_t kMaxStates = 1 << 18, kMaxEdges = 1 << 20;

  State add_state();
  /// A rule without ways yet.
  Rule add_rule();
  void epsilon(State from, State to);
  void bytes(State from, State to, uint8_t first, uint8_t last);
  void call(State from, State to, const Rule& rule);
  void literal(State from, State to, std::string_view text);
  /// Any of the texts, which share what they begin with.
  void words(State from, State to, std::span<const std::string> texts);
  void characters(State from, State to, const CharSet& set, Spelling spelling);

  /// Errors: GrammarError where no text, or none within kMaxCalls, leads to the end, or a rule
  /// calls itself before it has read a byte.
  Automaton finish(const Rule& root) &&;

 private:
  struct Edge {
    State from, to;
    uint8_t first = 0, last = 0;
  };
  struct CallEdge {
    State from, to, begin;
  };
  void utf8_range(State from, State to, char32_t first, char32_t last);
  void byte_ranges(State from, State to, std::span<const std::pair<uint8_t, uint8_t>> ranges);
  void check_edges() const;
  static void find_calls_needed(Automaton& automaton);
  static void refuse_left_recursion(const Automaton& automaton, const std::vector<Rule>& rules);

  std::vector<bool> is_end_;
  std::vector<Rule> rules_;
  std::vector<Edge> bytes_, epsilons_;
  std::vector<CallEdge> calls_;
};

}  // namespace danlu::grammar
