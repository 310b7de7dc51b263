#include "grammar/regex.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "text/tokenizer/utf8.h"

namespace danlu::grammar {
namespace {

constexpr int kMaxGroups = 100;
constexpr uint32_t kMaxCount = 1 << 16, kEndless = UINT32_MAX;
constexpr size_t kMaxPattern = 1 << 16;

/// What a part of a pattern matches.
struct Part {
  enum class Kind { kCharacters, kSequence, kChoice, kRepeat };
  Kind kind;
  CharSet set = {};
  std::vector<Part> parts = {};  ///< of a repetition one
  uint32_t least = 0, most = 0;
  bool begins = false, ends = false;  ///< an outermost alternative: ^ before it, $ after it
};

const CharSet kDigits = {{'0', '9'}};
const CharSet kWordCharacters = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const CharSet kSpaces = {{'\t', '\r'}, {' ', ' '}};

class PatternParser {
 public:
  PatternParser(const std::string& pattern, RegexUse use) : text_(pattern), use_(use) {
    if (!text::is_valid_utf8(pattern)) fail(tr("it is not UTF-8"));
    if (pattern.size() > kMaxPattern) fail(tr("it is longer than {} bytes", kMaxPattern));
  }

  Part parse() {
    Part all = alternatives(0);
    if (!at_end()) fail(tr("')' closes nothing"));
    return all;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw GrammarError(tr("pattern '{}', byte {}: {}", text_.substr(0, 200), at_, what));
  }
  bool at_end() const { return at_ == text_.size(); }
  char peek() const { return at_end() ? '\0' : text_[at_]; }
  bool take(std::string_view what) {
    if (!std::string_view(text_).substr(at_).starts_with(what)) return false;
    at_ += what.size();
    return true;
  }
  char32_t take_character() {
    const auto c = text::decode_utf8(text_, at_);
    at_ += c.length;
    return c.value;
  }

  Part alternatives(int depth) {
    if (depth > kMaxGroups) fail(tr("groups are nested more than {} deep", kMaxGroups));
    Part choice{Part::Kind::kChoice};
    do {
      choice.parts.push_back(sequence(depth));
    } while (take("|"));
    return choice;
  }

  Part sequence(int depth) {
    Part result{Part::Kind::kSequence};
    if (depth == 0 && take("^")) result.begins = true;
    while (!at_end() && peek() != '|' && peek() != ')') {
      if (depth == 0 && peek() == '$' && (at_ + 1 == text_.size() || text_[at_ + 1] == '|')) {
        ++at_;
        result.ends = true;
        break;
      }
      result.parts.push_back(repeated(atom(depth)));
    }
    return result;
  }

  Part atom(int depth) {
    if (take("(")) return group(depth);
    if (take("[")) return {Part::Kind::kCharacters, character_class()};
    if (take(".")) return {Part::Kind::kCharacters, any_character()};
    if (take("\\")) return {Part::Kind::kCharacters, escape(/*in_class=*/false)};
    if (peek() == '^' || peek() == '$')
      fail(tr("'{}' is followed only at the ends of the pattern", peek()));
    if (std::string_view("*+?").find(peek()) != std::string_view::npos)
      fail(tr("'{}' repeats nothing", peek()));
    const char32_t c = take_character();
    return {Part::Kind::kCharacters, {{c, c}}};
  }

  Part group(int depth) {
    if (take("?")) {
      if (take("<") && peek() != '=' && peek() != '!') {
        at_ = std::min(text_.find('>', at_), text_.size());
        if (!take(">")) fail(tr("the group's name does not end"));
      } else if (text_[at_ - 1] == '<' || !take(":")) {
        fail(tr("this kind of group is not supported"));
      }
    }
    Part inner = alternatives(depth + 1);
    if (!take(")")) fail(tr("a group is not closed"));
    return inner;
  }

  Part repeated(Part part) {
    uint32_t least = 1, most = 1;
    if (take("*")) {
      least = 0, most = kEndless;
    } else if (take("+")) {
      most = kEndless;
    } else if (take("?")) {
      least = 0;
    } else if (!take_counts(least, most)) {
      return part;
    }
    if (take("+")) fail(tr("possessive repetition is not supported"));
    take("?");  // as many or as few: the same texts
    if (std::string_view("*+?").find(peek()) != std::string_view::npos && !at_end())
      fail(tr("'{}' repeats nothing", peek()));
    uint32_t again_least, again_most;
    if (take_counts(again_least, again_most)) fail(tr("'{{' repeats nothing"));
    Part result{Part::Kind::kRepeat};
    result.parts.push_back(std::move(part));
    result.least = least;
    result.most = most;
    return result;
  }

  /// "{n}", "{n,}", "{n,m}"; other braces are characters.
  bool take_counts(uint32_t& least, uint32_t& most) {
    const size_t begin = at_;
    const auto back = [&] {
      at_ = begin;
      return false;
    };
    if (!take("{")) return false;
    const auto first = take_number();
    if (!first) return back();
    least = most = *first;
    if (take(",")) {
      const auto second = take_number();
      most = second.value_or(kEndless);
    }
    if (!take("}")) return back();
    if (least > kMaxCount || (most != kEndless && most > kMaxCount))
      fail(tr("a count is larger than {}", kMaxCount));
    if (most < least) fail(tr("the first count is larger than the second"));
    return true;
  }

  std::optional<uint32_t> take_number() {
    if (peek() < '0' || peek() > '9') return std::nullopt;
    uint32_t number = 0;
    while (peek() >= '0' && peek() <= '9')
      number = std::min<uint32_t>(number * 10 + (text_[at_++] - '0'), kMaxCount + 1);
    return number;
  }

  CharSet any_character() const {
    CharSet breaks = {{'\n', '\n'}};
    // ECMAScript's, so that both dialects agree to what matches.
    if (use_ == RegexUse::kSearch) breaks.add({{'\r', '\r'}, {0x2028, 0x2029}});
    return breaks.complement();
  }

  CharSet character_class() {
    const bool is_complement = take("^");
    CharSet set;
    for (bool first = true; first || peek() != ']'; first = false) {
      if (at_end()) fail(tr("a class is not closed"));
      if (first && peek() == ']') fail(tr("a class is empty"));
      if (take("[:")) fail(tr("named classes are not supported"));
      const CharSet low = class_item();
      if (peek() != '-' || at_ + 1 >= text_.size() || text_[at_ + 1] == ']') {
        set.add(low);
        continue;
      }
      ++at_;
      const CharSet high = class_item();
      const auto is_one = [](const CharSet& s) {
        return s.ranges().size() == 1 && s.ranges()[0].first == s.ranges()[0].last;
      };
      if (!is_one(low) || !is_one(high) || low.ranges()[0].first > high.ranges()[0].first)
        fail(tr("a range of a class goes from a lower to a higher character"));
      set.add(low.ranges()[0].first, high.ranges()[0].first);
    }
    ++at_;
    return is_complement ? set.complement() : set;
  }

  CharSet class_item() {
    if (at_end()) fail(tr("a class is not closed"));
    if (take("\\")) return escape(/*in_class=*/true);
    const char32_t c = take_character();
    return {{c, c}};
  }

  CharSet escape(bool in_class) {
    if (at_end()) fail(tr("it ends with a backslash"));
    const char32_t c = take_character();
    const auto one = [](char32_t character) { return CharSet{{character, character}}; };
    switch (c) {
      case 'd':
        return kDigits;
      case 'D':
        return kDigits.complement();
      case 'w':
        return kWordCharacters;
      case 'W':
        return kWordCharacters.complement();
      case 's':
        return kSpaces;
      case 'S':
        return kSpaces.complement();
      case 'n':
        return one('\n');
      case 't':
        return one('\t');
      case 'r':
        return one('\r');
      case 'f':
        return one('\f');
      case 'v':
        return one('\v');
      case 'x':
        return one(hexadecimal(2));
      case 'u':
        return one(hexadecimal(4));
      case '0':
        if (peek() < '0' || peek() > '9') return one(0);
        break;
      case 'b':
        if (in_class) return one('\b');
        break;
      default:
        const bool is_sign = c > 0x7F || !kWordCharacters.contains(c);
        if (is_sign) return one(c);
    }
    at_ -= 1;
    fail(tr("'\\{}' is not supported", std::string(1, static_cast<char>(c))));
  }

  char32_t hexadecimal(size_t digits) {
    const bool braced = take("{");
    const size_t begin = at_;
    const auto is_hex = [](char c) {
      return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
    };
    while (at_ - begin < (braced ? 6 : digits) && is_hex(peek())) ++at_;
    const std::string hex = text_.substr(begin, at_ - begin);
    if (hex.empty() || (braced ? !take("}") : hex.size() != digits))
      fail(tr("hexadecimal digits are missing"));
    const auto c = static_cast<char32_t>(std::stoul(hex, nullptr, 16));
    if (c > CharSet::kLast || (c >= 0xD800 && c <= 0xDFFF)) fail(tr("no such character"));
    return c;
  }

  const std::string& text_;
  RegexUse use_;
  size_t at_ = 0;
};

class PatternWriter {
 public:
  PatternWriter(AutomatonBuilder& builder, Spelling spelling)
      : builder_(builder), spelling_(spelling) {}

  void add(const Part& part, State from, State to) {
    switch (part.kind) {
      case Part::Kind::kCharacters:
        return builder_.characters(from, to, part.set, spelling_);
      case Part::Kind::kSequence:
        for (const Part& inner : part.parts) {
          const State next = builder_.add_state();
          add(inner, from, next);
          from = next;
        }
        return builder_.epsilon(from, to);
      case Part::Kind::kChoice:
        for (const Part& inner : part.parts) add(inner, from, to);
        return;
      case Part::Kind::kRepeat:
        return repeat(part, from, to);
    }
  }

  /// Anything, as often as it may come.
  void anything(State from, State to) {
    const State loop = builder_.add_state();
    builder_.epsilon(from, loop);
    builder_.characters(loop, loop, CharSet::all(), spelling_);
    builder_.epsilon(loop, to);
  }

 private:
  void repeat(const Part& part, State from, State to) {
    const Part& body = part.parts.front();
    const bool has_counts = part.least > 1 || (part.most != kEndless && part.most > 1);
    if (!has_counts) {
      if (part.most == 0) return builder_.epsilon(from, to);
      const State before = builder_.add_state(), behind = builder_.add_state();
      builder_.epsilon(from, before);
      add(body, before, behind);
      if (part.most == kEndless) builder_.epsilon(behind, before);
      builder_.epsilon(behind, to);
      if (part.least == 0) builder_.epsilon(from, to);
      return;
    }
    // Once as a rule, or counts inside one another would multiply.
    const Rule once = builder_.add_rule();
    add(body, once.begin, once.end);
    for (uint32_t i = 0; i < part.least; ++i) {
      const State next = builder_.add_state();
      builder_.call(from, next, once);
      from = next;
    }
    if (part.most == kEndless) {
      const State loop = builder_.add_state();
      builder_.epsilon(from, loop);
      builder_.call(loop, loop, once);
      from = loop;
    }
    for (uint32_t i = part.least; part.most != kEndless && i < part.most; ++i) {
      const State next = builder_.add_state();
      builder_.epsilon(from, to);
      builder_.call(from, next, once);
      from = next;
    }
    builder_.epsilon(from, to);
  }

  AutomatonBuilder& builder_;
  Spelling spelling_;
};

}  // namespace

void add_regex(AutomatonBuilder& builder, State from, State to, const std::string& pattern,
               RegexUse use, Spelling spelling) {
  const Part all = PatternParser(pattern, use).parse();
  PatternWriter writer(builder, spelling);
  for (const Part& alternative : all.parts) {
    State begin = from, end = to;
    if (use == RegexUse::kSearch && !alternative.begins) {
      begin = builder.add_state();
      writer.anything(from, begin);
    }
    if (use == RegexUse::kSearch && !alternative.ends) {
      end = builder.add_state();
      writer.anything(end, to);
    }
    writer.add(alternative, begin, end);
  }
}

}  // namespace danlu::grammar
