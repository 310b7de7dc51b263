// grammar/json_parts.h: the parts of JSON text as ways through an automaton.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/json.h"
#include "grammar/automaton.h"

namespace danlu::grammar {

/// A bound of a range of numbers; exclusive: not part of it.
struct NumberBound {
  int64_t value;
  bool exclusive = false;
};

/// Adds ways from `from` to `to`. Parts that often come are rules, made when they are first used.
class JsonParts {
 public:
  /// in_tags: tags stand around the document, so strings escape '<' and none of them holds a tag.
  explicit JsonParts(AutomatonBuilder& builder, bool in_tags = false)
      : builder_(builder), in_tags_(in_tags) {}

  /// How characters are written inside a string.
  Spelling spelling() const { return in_tags_ ? Spelling::kTaggedJson : Spelling::kJson; }
  /// A scalar, or a document without space, as it is written.
  std::string spelled(const Json& value) const;

  /// What may stand between two signs: nothing, a space, or a line break and up to 40 spaces or
  /// tabs.
  void space(State from, State to);
  void string(State from, State to);
  /// A string of so many characters.
  void string(State from, State to, uint64_t least, std::optional<uint64_t> most);
  /// A string without escapes that is none of `taken`.
  void other_key(State from, State to, const std::set<std::string>& taken);
  /// Plain text of these characters that is none of `taken`.
  void other_text(State from, State to, const std::set<std::string>& taken, const CharSet& of);
  void integer(State from, State to, std::optional<int64_t> least, std::optional<int64_t> most);
  /// An integer that `factor` divides, which costs some 20 states for each remainder.
  void multiples(State from, State to, std::optional<int64_t> least, std::optional<int64_t> most,
                 uint64_t factor);
  void number(State from, State to);
  /// Without exponents, with at most so many digits after the point.
  void number(State from, State to, std::optional<NumberBound> least,
              std::optional<NumberBound> most, size_t fraction_digits = kFractionDigits);
  void boolean(State from, State to);
  /// Exactly `value`, with space between signs.
  void constant(State from, State to, const Json& value);
  void any_value(State from, State to);
  void any_object(State from, State to);
  void any_array(State from, State to);

  static constexpr size_t kFractionDigits = 20;

  using Add = std::function<void(State from, State to)>;
  /// '[' and items: `item(i)` adds the one at place i, `rest` those after the first `num_items`
  /// (none: there are no more).
  void array(State from, State to, size_t num_items,
             const std::function<void(size_t, State, State)>& item, const Add& rest, uint64_t least,
             std::optional<uint64_t> most);
  /// '[' and items, of which each is one of `values` and none comes twice. Costs 2^values states.
  void distinct_items(State from, State to, const std::vector<Rule>& values, uint64_t least,
                      std::optional<uint64_t> most);

 private:
  const Rule& rule(std::optional<Rule>& kept, const Add& add);
  void character(State from, State to);
  void literal(State from, State to, std::string_view text) { builder_.literal(from, to, text); }
  State digits(State to, size_t least, size_t most);
  void digits_from(State from, size_t at, const std::string& least, const std::string& most,
                   bool at_least, bool at_most, const std::vector<State>& any);
  void magnitudes(State from, State to, const std::string& least, const std::string& most);
  void fraction(State from, State to, bool only_zeros, bool not_zero, size_t most_digits);
  void magnitude_range(State from, State to, uint64_t least, bool without_least,
                       std::optional<uint64_t> most, bool without_most, size_t fraction_digits);
  CharSet raw_characters() const;

  AutomatonBuilder& builder_;
  const bool in_tags_;
  std::optional<Rule> space_, string_, character_, number_, value_, object_, array_;
};

}  // namespace danlu::grammar
