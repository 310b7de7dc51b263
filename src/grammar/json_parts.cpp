#include "grammar/json_parts.h"

#include <bit>
#include <map>

#include "text/tokenizer/utf8.h"

namespace danlu::grammar {
namespace {

constexpr int kMaxIndent = 40;
constexpr size_t kIntegerDigits = 19;
const std::string kLargestMagnitude(kIntegerDigits, '9');

uint64_t magnitude_of(int64_t v) {
  return v < 0 ? 0 - static_cast<uint64_t>(v) : static_cast<uint64_t>(v);
}

/// Whole numbers without a sign that a factor divides: a state knows how many digits are to come
/// and what remains of those before.
class MultiplesWriter {
 public:
  MultiplesWriter(AutomatonBuilder& builder, State to, uint64_t factor)
      : builder_(builder), to_(to), factor_(factor) {}

  void add(State from, uint64_t least, uint64_t most) {
    const std::string low = std::to_string(least), high = std::to_string(most);
    for (size_t length = low.size(); length <= high.size(); ++length) {
      const State begin = builder_.add_state();
      builder_.epsilon(from, begin);
      between(begin, 0, 0, length == low.size() ? low : "1" + std::string(length - 1, '0'),
              length == high.size() ? high : std::string(length, '9'), true, true);
    }
  }

 private:
  void between(State from, size_t at, uint64_t remainder, const std::string& least,
               const std::string& most, bool at_least, bool at_most) {
    const size_t left = least.size() - at;
    if (left == 0) {
      if (remainder == 0) builder_.epsilon(from, to_);
      return;
    }
    const char low = at_least ? least[at] : '0', high = at_most ? most[at] : '9';
    for (char c = low; c <= high; ++c) {
      const uint64_t next = (remainder * 10 + static_cast<uint64_t>(c - '0')) % factor_;
      const bool stays_least = at_least && c == low, stays_most = at_most && c == high;
      const bool is_free = !stays_least && !stays_most;
      const State state = is_free ? any(left - 1, next) : builder_.add_state();
      builder_.bytes(from, state, static_cast<uint8_t>(c), static_cast<uint8_t>(c));
      if (!is_free) between(state, at + 1, next, least, most, stays_least, stays_most);
    }
  }

  /// From which so many digits of any kind lead to the end.
  State any(size_t left, uint64_t remainder) {
    const auto [place, is_new] = any_.try_emplace({left, remainder}, 0);
    if (!is_new) return place->second;
    const State state = place->second = builder_.add_state();
    between(state, 0, remainder, std::string(left, '0'), std::string(left, '9'), false, false);
    return state;
  }

  AutomatonBuilder& builder_;
  const State to_;
  const uint64_t factor_;
  std::map<std::pair<size_t, uint64_t>, State> any_;
};

}  // namespace

const Rule& JsonParts::rule(std::optional<Rule>& kept, const Add& add) {
  if (!kept) {
    kept = builder_.add_rule();
    add(kept->begin, kept->end);
  }
  return *kept;
}

void JsonParts::space(State from, State to) {
  builder_.call(from, to, rule(space_, [this](State begin, State end) {
                  builder_.epsilon(begin, end);
                  builder_.bytes(begin, end, ' ', ' ');
                  State at = builder_.add_state();
                  builder_.bytes(begin, at, '\n', '\n');
                  for (int i = 0; i < kMaxIndent; ++i) {
                    const State next = builder_.add_state();
                    builder_.epsilon(at, end);
                    builder_.bytes(at, next, ' ', ' ');
                    builder_.bytes(at, next, '\t', '\t');
                    at = next;
                  }
                  builder_.epsilon(at, end);
                }));
}

/// The characters that stand in a string as they are.
CharSet JsonParts::raw_characters() const {
  const CharSet raw = CharSet{{0, 0x1F}, {'"', '"'}, {'\\', '\\'}}.complement();
  return in_tags_ ? raw.without({{'<', '<'}}) : raw;
}

std::string JsonParts::spelled(const Json& value) const {
  const std::string text = dump_text(value);
  if (!in_tags_) return text;
  std::string escaped;
  for (const char c : text) escaped += c == '<' ? std::string("\\u003c") : std::string(1, c);
  return escaped;
}

/// A character of a string as any JSON writer may spell it; a pair of surrogates is one.
void JsonParts::character(State from, State to) {
  builder_.characters(from, to, raw_characters(), Spelling::kPlain);
  const State escape = builder_.add_state(), hex = builder_.add_state();
  builder_.bytes(from, escape, '\\', '\\');
  for (const char c : std::string_view("\"\\/bfnrt"))
    builder_.bytes(escape, to, static_cast<uint8_t>(c), static_cast<uint8_t>(c));
  builder_.bytes(escape, hex, 'u', 'u');
  const auto digit = [&](State begin, State end, std::string_view ranges) {
    for (size_t i = 0; i + 1 < ranges.size(); i += 2)
      builder_.bytes(begin, end, static_cast<uint8_t>(ranges[i]),
                     static_cast<uint8_t>(ranges[i + 1]));
  };
  constexpr std::string_view kAny = "09afAF";
  const auto any_digits = [&](State begin, State end, int count) {
    for (int i = 0; i < count; ++i) {
      const State next = i + 1 == count ? end : builder_.add_state();
      digit(begin, next, kAny);
      begin = next;
    }
  };
  const State plain = builder_.add_state(), d = builder_.add_state(), low = builder_.add_state();
  digit(hex, plain, "09acACeeEEffFF");
  any_digits(plain, to, 3);
  digit(hex, d, "ddDD");
  const State below = builder_.add_state(), high = builder_.add_state();
  digit(d, below, "07");
  any_digits(below, to, 2);
  digit(d, high, "89abAB");
  any_digits(high, low, 2);
  const State second = builder_.add_state(), second_d = builder_.add_state();
  builder_.literal(low, second, "\\u");
  digit(second, second_d, "ddDD");
  const State third = builder_.add_state();
  digit(second_d, third, "cfCF");
  any_digits(third, to, 2);
}

void JsonParts::string(State from, State to) {
  builder_.call(from, to, rule(string_, [this](State begin, State end) {
                  const State inside = builder_.add_state();
                  builder_.bytes(begin, inside, '"', '"');
                  character(inside, inside);
                  builder_.bytes(inside, end, '"', '"');
                }));
}

void JsonParts::string(State from, State to, uint64_t least, std::optional<uint64_t> most) {
  const Rule& one = rule(character_, [this](State begin, State end) { character(begin, end); });
  State at = builder_.add_state();
  builder_.bytes(from, at, '"', '"');
  const auto next = [&] {
    const State behind = builder_.add_state();
    builder_.call(at, behind, one);
    at = behind;
  };
  for (uint64_t i = 0; i < least; ++i) next();
  if (most) {
    for (uint64_t i = least; i < *most; ++i) {
      builder_.bytes(at, to, '"', '"');
      next();
    }
  } else {
    const State loop = builder_.add_state();
    builder_.epsilon(at, loop);
    builder_.call(loop, loop, one);
    at = loop;
  }
  builder_.bytes(at, to, '"', '"');
}

void JsonParts::other_key(State from, State to, const std::set<std::string>& taken) {
  const State inside = builder_.add_state(), behind = builder_.add_state();
  builder_.bytes(from, inside, '"', '"');
  other_text(inside, behind, taken, raw_characters());
  builder_.bytes(behind, to, '"', '"');
}

void JsonParts::other_text(State from, State to, const std::set<std::string>& taken,
                           const CharSet& of) {
  struct Node {
    std::map<char32_t, size_t> next;
    bool is_taken = false;
  };
  std::vector<Node> nodes(1);
  for (const std::string& name : taken) {
    size_t at = 0;
    bool may_come = text::is_valid_utf8(name);
    for (size_t i = 0; may_come && i < name.size();) {
      const auto c = text::decode_utf8(name, i);
      i += c.length;
      may_come = of.contains(c.value);
      const auto [place, is_new] = nodes[at].next.try_emplace(c.value, nodes.size());
      at = place->second;
      if (is_new) nodes.emplace_back();
    }
    if (may_come) nodes[at].is_taken = true;
  }
  const State other = builder_.add_state();
  builder_.characters(other, other, of, Spelling::kPlain);
  builder_.epsilon(other, to);
  std::vector<State> states;
  for (size_t i = 0; i < nodes.size(); ++i) states.push_back(builder_.add_state());
  builder_.epsilon(from, states[0]);
  for (size_t i = 0; i < nodes.size(); ++i) {
    CharSet followed;
    for (const auto& [c, next] : nodes[i].next) {
      followed.add(c, c);
      if (of.contains(c)) builder_.characters(states[i], states[next], {{c, c}}, Spelling::kPlain);
    }
    builder_.characters(states[i], other, of.without(followed), Spelling::kPlain);
    if (!nodes[i].is_taken) builder_.epsilon(states[i], to);
  }
}

/// A state from which `least` to `most` digits lead to `to`.
State JsonParts::digits(State to, size_t least, size_t most) {
  State at = to;
  for (size_t left = 1; left <= most; ++left) {
    const State before = builder_.add_state();
    builder_.bytes(before, at, '0', '9');
    // So many digits may still come, of which the last may be absent.
    if (left < most && most - left >= least) builder_.epsilon(before, to);
    at = before;
  }
  return at;
}

/// The digits from place `at` on, between those of two numbers of the same length. any[n]: the
/// state from which n digits lead to the end.
void JsonParts::digits_from(State from, size_t at, const std::string& least,
                            const std::string& most, bool at_least, bool at_most,
                            const std::vector<State>& any) {
  const size_t left = least.size() - at;
  if (left == 0) return builder_.epsilon(from, any[0]);
  if (!at_least && !at_most) return builder_.epsilon(from, any[left]);
  const char low = at_least ? least[at] : '0', high = at_most ? most[at] : '9';
  const auto digit = [&](char c, bool stays_least, bool stays_most) {
    const State next = builder_.add_state();
    builder_.bytes(from, next, static_cast<uint8_t>(c), static_cast<uint8_t>(c));
    digits_from(next, at + 1, least, most, stays_least, stays_most, any);
  };
  if (low == high) return digit(low, at_least, at_most);
  char first = low, last = high;
  if (at_least) digit(first++, true, false);
  if (at_most) digit(last--, false, true);
  if (first <= last)
    builder_.bytes(from, any[left - 1], static_cast<uint8_t>(first), static_cast<uint8_t>(last));
}

/// Whole numbers without a sign.
void JsonParts::magnitudes(State from, State to, const std::string& least,
                           const std::string& most) {
  std::vector<State> any = {to};
  while (any.size() < most.size()) {
    any.push_back(builder_.add_state());
    builder_.bytes(any.back(), any[any.size() - 2], '0', '9');
  }
  any.push_back(to);  // never asked for: the first digit is always looked at
  for (size_t length = least.size(); length <= most.size(); ++length) {
    const std::string smallest = "1" + std::string(length - 1, '0'), largest(length, '9');
    const State begin = builder_.add_state();
    builder_.epsilon(from, begin);
    digits_from(begin, 0, length == least.size() ? least : smallest,
                length == most.size() ? most : largest, true, true, any);
  }
}

void JsonParts::integer(State from, State to, std::optional<int64_t> least,
                        std::optional<int64_t> most) {
  const int64_t low = least.value_or(INT64_MIN), high = most.value_or(INT64_MAX);
  if (high >= 0 && low <= high)
    magnitudes(from, to, std::to_string(std::max<int64_t>(low, 0)), std::to_string(high));
  if (low < 0 && low <= high) {
    const State minus = builder_.add_state();
    builder_.bytes(from, minus, '-', '-');
    magnitudes(minus, to, std::to_string(high < 0 ? magnitude_of(high) : 1),
               std::to_string(magnitude_of(low)));
  }
}

void JsonParts::multiples(State from, State to, std::optional<int64_t> least,
                          std::optional<int64_t> most, uint64_t factor) {
  const int64_t low = least.value_or(INT64_MIN), high = most.value_or(INT64_MAX);
  if (low > high) return;
  MultiplesWriter writer(builder_, to, factor);
  if (high >= 0) writer.add(from, magnitude_of(std::max<int64_t>(low, 0)), magnitude_of(high));
  if (low >= 0) return;
  const State minus = builder_.add_state();
  builder_.bytes(from, minus, '-', '-');
  writer.add(minus, high < 0 ? magnitude_of(high) : 1, magnitude_of(low));
}

void JsonParts::number(State from, State to) {
  builder_.call(from, to, rule(number_, [this](State begin, State end) {
                  const State sign = builder_.add_state(), whole = builder_.add_state();
                  builder_.epsilon(begin, sign);
                  builder_.bytes(begin, sign, '-', '-');
                  magnitudes(sign, whole, "0", kLargestMagnitude);
                  const State point = builder_.add_state(), exponent = builder_.add_state();
                  builder_.epsilon(whole, point);
                  fraction(whole, point, false, false, kFractionDigits);
                  builder_.epsilon(point, end);
                  builder_.bytes(point, exponent, 'e', 'e');
                  builder_.bytes(point, exponent, 'E', 'E');
                  const State power = digits(end, 1, 2);
                  builder_.epsilon(exponent, power);
                  builder_.bytes(exponent, power, '+', '+');
                  builder_.bytes(exponent, power, '-', '-');
                }));
}

/// A point and digits.
void JsonParts::fraction(State from, State to, bool only_zeros, bool not_zero, size_t most_digits) {
  State zeros = builder_.add_state(), other = builder_.add_state();
  builder_.bytes(from, zeros, '.', '.');
  for (size_t i = 0; i < most_digits; ++i) {
    const State next_zeros = builder_.add_state(), next_other = builder_.add_state();
    builder_.bytes(zeros, next_zeros, '0', '0');
    if (!only_zeros) builder_.bytes(zeros, next_other, '1', '9');
    if (i > 0) builder_.bytes(other, next_other, '0', '9');
    if (!not_zero) builder_.epsilon(next_zeros, to);
    builder_.epsilon(next_other, to);
    zeros = next_zeros;
    other = next_other;
  }
}

/// Numbers without a sign and exponent, between whole bounds.
void JsonParts::magnitude_range(State from, State to, uint64_t least, bool without_least,
                                std::optional<uint64_t> most, bool without_most,
                                size_t fraction_digits) {
  if (most && (*most < least || (*most == least && (without_least || without_most)))) return;
  const auto whole = [&](const std::string& low, const std::string& high) {
    const State behind = builder_.add_state();
    magnitudes(from, behind, low, high);
    return behind;
  };
  if (!most || *most > least) {
    const State at_least = whole(std::to_string(least), std::to_string(least));
    if (!without_least) builder_.epsilon(at_least, to);
    fraction(at_least, to, false, without_least, fraction_digits);
    const bool has_between = !most || *most - least > 1;
    if (has_between) {
      const State between =
          whole(std::to_string(least + 1), most ? std::to_string(*most - 1) : kLargestMagnitude);
      builder_.epsilon(between, to);
      fraction(between, to, false, false, fraction_digits);
    }
  }
  if (most && !without_most) {
    const State at_most = whole(std::to_string(*most), std::to_string(*most));
    builder_.epsilon(at_most, to);
    fraction(at_most, to, true, false, fraction_digits);
  }
}

void JsonParts::number(State from, State to, std::optional<NumberBound> least,
                       std::optional<NumberBound> most, size_t fraction_digits) {
  const auto negated = [](int64_t v) { return 0 - static_cast<uint64_t>(v); };
  if (!most || most->value >= 0) {
    const bool from_zero = !least || least->value < 0;
    magnitude_range(from, to, from_zero ? 0 : static_cast<uint64_t>(least->value),
                    !from_zero && least->exclusive,
                    most ? std::optional(static_cast<uint64_t>(most->value)) : std::nullopt,
                    most && most->exclusive, fraction_digits);
  }
  if (!least || least->value < 0) {
    const State minus = builder_.add_state();
    builder_.bytes(from, minus, '-', '-');
    const bool from_zero = !most || most->value >= 0;
    const bool without_zero = from_zero && most && most->value == 0 && most->exclusive;
    magnitude_range(minus, to, from_zero ? 0 : negated(most->value),
                    without_zero || (!from_zero && most->exclusive),
                    least ? std::optional(negated(least->value)) : std::nullopt,
                    least && least->exclusive, fraction_digits);
  }
}

void JsonParts::boolean(State from, State to) {
  literal(from, to, "true");
  literal(from, to, "false");
}

void JsonParts::constant(State from, State to, const Json& value) {
  if (!value.is_structured()) return literal(from, to, spelled(value));
  const bool is_object = value.is_object();
  State at = builder_.add_state();
  literal(from, at, is_object ? "{" : "[");
  const auto spaced = [&] {
    const State next = builder_.add_state();
    space(at, next);
    at = next;
  };
  const auto say = [&](const std::string& text) {
    const State next = builder_.add_state();
    literal(at, next, text);
    at = next;
  };
  bool is_first = true;
  for (const auto& [key, inner] : value.items()) {
    if (!is_first) say(",");
    is_first = false;
    spaced();
    if (is_object) {
      say(spelled(key) + ":");
      spaced();
    }
    const State next = builder_.add_state();
    constant(at, next, inner);
    at = next;
  }
  spaced();
  literal(at, to, is_object ? "}" : "]");
}

void JsonParts::any_value(State from, State to) {
  const bool is_new = !value_;
  if (is_new) value_ = builder_.add_rule();
  const Rule value = *value_;
  builder_.call(from, to, value);
  if (!is_new) return;
  string(value.begin, value.end);
  number(value.begin, value.end);
  boolean(value.begin, value.end);
  literal(value.begin, value.end, "null");
  any_object(value.begin, value.end);
  any_array(value.begin, value.end);
}

void JsonParts::any_object(State from, State to) {
  const bool is_new = !object_;
  if (is_new) object_ = builder_.add_rule();
  const Rule object = *object_;
  builder_.call(from, to, object);
  if (!is_new) return;
  const auto state = [this] { return builder_.add_state(); };
  const State open = state(), first = state(), key = state(), colon = state(), spaced = state(),
              value = state(), behind = state(), comma = state(), close = state();
  literal(object.begin, open, "{");
  space(open, first);
  literal(first, object.end, "}");
  builder_.epsilon(first, key);
  string(key, colon);
  literal(colon, spaced, ":");
  space(spaced, value);
  any_value(value, behind);
  literal(behind, comma, ",");
  space(comma, key);
  space(behind, close);
  literal(close, object.end, "}");
}

void JsonParts::any_array(State from, State to) {
  const bool is_new = !array_;
  if (is_new) array_ = builder_.add_rule();
  const Rule list = *array_;
  builder_.call(from, to, list);
  if (!is_new) return;
  array(
      list.begin, list.end, 0, {}, [this](State a, State b) { any_value(a, b); }, 0, std::nullopt);
}

void JsonParts::array(State from, State to, size_t num_items,
                      const std::function<void(size_t, State, State)>& item, const Add& rest,
                      uint64_t least, std::optional<uint64_t> most) {
  const auto state = [this] { return builder_.add_state(); };
  const State open = state();
  literal(from, open, "[");
  State before = state();
  space(open, before);
  if (least == 0) literal(before, to, "]");
  for (uint64_t i = 0;; ++i) {
    const bool is_listed = i < num_items;
    if (most == i || (!is_listed && !rest)) return;
    const State behind = state();
    if (is_listed) {
      item(i, before, behind);
    } else {
      rest(before, behind);
    }
    if (i + 1 >= least) {
      const State close = state();
      space(behind, close);
      literal(close, to, "]");
    }
    const State comma = state();
    literal(behind, comma, ",");
    // From here on all places are alike; the first is not, which ']' may follow.
    if (i > 0 && !is_listed && !most && i + 1 >= least) return space(comma, before);
    before = state();
    space(comma, before);
  }
}

void JsonParts::distinct_items(State from, State to, const std::vector<Rule>& values,
                               uint64_t least, std::optional<uint64_t> most) {
  const auto state = [this] { return builder_.add_state(); };
  const size_t num_sets = size_t{1} << values.size();
  const State open = state();
  literal(from, open, "[");
  // By the set of values that came so far.
  std::vector<State> before(num_sets), behind(num_sets);
  for (size_t set = 0; set < num_sets; ++set) {
    before[set] = state();
    behind[set] = state();
  }
  space(open, before[0]);
  if (least == 0) literal(before[0], to, "]");
  for (size_t set = 0; set < num_sets; ++set) {
    const auto count = static_cast<uint64_t>(std::popcount(set));
    if (set > 0 && count >= least) {
      const State close = state();
      space(behind[set], close);
      literal(close, to, "]");
    }
    if (most && count >= *most) continue;
    if (set > 0 && count < values.size()) {
      const State comma = state();
      literal(behind[set], comma, ",");
      space(comma, before[set]);
    }
    for (size_t i = 0; i < values.size(); ++i) {
      if ((set >> i & 1) == 0) builder_.call(before[set], behind[set | size_t{1} << i], values[i]);
    }
  }
}

}  // namespace danlu::grammar
