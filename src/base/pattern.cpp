#include "base/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>
#include <charconv>
#include <vector>

namespace danlu {
namespace {

/// Enough for any sensible pattern on a name of some hundred characters; a runaway one meets it
/// after some tens of milliseconds. On an answer of some thousand, after some seconds.
constexpr uint32_t kNameSteps = 1'000'000, kTextSteps = 100 * kNameSteps;
constexpr uint32_t kHeapLimitKb = 64 * 1024;

std::string pcre_text(int code) {
  PCRE2_UCHAR8 text[256];
  pcre2_get_error_message_8(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

struct PythonPattern {
  std::string text;
  std::vector<size_t> added;  ///< where in `text` there is a character more than in the original
};

/// Where the character class that opens at `begin` has its closing bracket; the end if it has none.
size_t class_end(std::string_view pattern, size_t begin) {
  size_t at = begin + 1;
  if (at < pattern.size() && pattern[at] == '^') ++at;
  // A bracket that comes first is one of the class.
  if (at < pattern.size() && pattern[at] == ']') ++at;
  while (at < pattern.size() && pattern[at] != ']') at += pattern[at] == '\\' ? 2 : 1;
  return std::min(at, pattern.size());
}

/// How many digits Python reads after \u or \U.
size_t digits_behind(char letter) { return letter == 'u' ? 4 : letter == 'U' ? 8 : 0; }

/// Writes the escape at `at` of `pattern` as PCRE2 means it and returns where it ends.
size_t append_escape(std::string_view pattern, size_t at, PythonPattern& out) {
  const char letter = at + 1 < pattern.size() ? pattern[at + 1] : '\0';
  const auto add = [&](std::string_view text) {
    for (size_t i = 0; i < text.size(); ++i) out.added.push_back(out.text.size() + i);
    out.text += text;
  };
  const size_t digits = digits_behind(letter);
  const std::string_view code = pattern.substr(std::min(at + 2, pattern.size()), digits);
  if (digits > 0 && code.size() == digits &&
      code.find_first_not_of("0123456789abcdefABCDEF") == std::string_view::npos) {
    out.text += "\\x";
    add("{");
    out.text += code;
    add("}");
    return at + 2 + digits;
  }
  if (letter == 'Z') {
    out.text += "\\z";
  } else if (letter == 'v') {
    out.text += "\\x";
    add("0b");
  } else {
    out.text += pattern.substr(at, 2);
  }
  return at + 2;
}

/// Python reads "{,n}" as "{0,n}"; PCRE2 takes it literally before its version 10.43. Its \Z is
/// PCRE2's \z, its \v one character, and it has \uXXXX.
PythonPattern as_pcre(std::string_view pattern) {
  PythonPattern out;
  size_t end_of_class = 0;
  for (size_t at = 0; at < pattern.size();) {
    if (pattern[at] == '\\') {
      at = append_escape(pattern, at, out);
      continue;
    }
    size_t end = at + 1;
    if (pattern[at] == '[' && at >= end_of_class) {
      end_of_class = class_end(pattern, at);
      // A bracket that comes first is one of the class: it goes with its opening.
      while (end < end_of_class && (pattern[end] == '^' || pattern[end] == ']')) ++end;
    } else if (at >= end_of_class && pattern.substr(at, 2) == "{,") {
      const size_t digits_end = pattern.find_first_not_of("0123456789", at + 2);
      if (digits_end != std::string_view::npos && pattern[digits_end] == '}') {
        out.text += "{0";
        out.added.push_back(out.text.size() - 1);
        ++at;
        end = digits_end + 1;
      }
    }
    out.text += pattern.substr(at, end - at);
    at = end;
  }
  return out;
}

}  // namespace

struct Pattern::State {
  std::string pattern;
  uint32_t max_steps = kNameSteps;
  pcre2_code_8* code = nullptr;
  pcre2_match_context_8* limits = nullptr;
  ~State() {
    pcre2_match_context_free_8(limits);
    pcre2_code_free_8(code);
  }
};

Pattern::Pattern(const std::string& pattern, PatternUse use) : state_(std::make_unique<State>()) {
  state_->pattern = pattern;
  int error = 0;
  PCRE2_SIZE offset = 0;
  const PythonPattern python = as_pcre(pattern);
  // Python's ^ under (?m) matches after a last line break too.
  uint32_t options = PCRE2_UTF | PCRE2_MATCH_INVALID_UTF | PCRE2_ALT_CIRCUMFLEX;
  if (use == PatternUse::kText) {
    options |= PCRE2_UCP;
    state_->max_steps = kTextSteps;
  }
  state_->code = pcre2_compile_8(reinterpret_cast<PCRE2_SPTR8>(python.text.data()),
                                 python.text.size(), options, &error, &offset, nullptr);
  if (!state_->code) {
    offset -= static_cast<size_t>(std::count_if(python.added.begin(), python.added.end(),
                                                [&](size_t at) { return at < offset; }));
    throw PatternError(tr("'{}' is not a valid regular expression: {} (at character {})", pattern,
                          pcre_text(error), offset));
  }
  state_->limits = pcre2_match_context_create_8(nullptr);
  if (!state_->limits) throw std::bad_alloc();
  pcre2_set_match_limit_8(state_->limits, state_->max_steps);
  pcre2_set_heap_limit_8(state_->limits, kHeapLimitKb);
}

Pattern::~Pattern() = default;
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern& Pattern::operator=(Pattern&&) noexcept = default;

std::optional<Pattern::Match> Pattern::find_from(std::string_view text, size_t begin,
                                                 uint32_t options) const {
  const std::unique_ptr<pcre2_match_data_8, decltype(&pcre2_match_data_free_8)> data(
      pcre2_match_data_create_from_pattern_8(state_->code, nullptr), pcre2_match_data_free_8);
  pcre2_match_data_8* found = data.get();
  if (!found) throw std::bad_alloc();
  const int result = pcre2_match_8(state_->code, reinterpret_cast<PCRE2_SPTR8>(text.data()),
                                   text.size(), begin, options, found, state_->limits);
  if (result >= 0) {
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer_8(found);
    Match match{ends[0], ends[1], {}};
    for (uint32_t group = 1; group < pcre2_get_ovector_count_8(found); ++group) {
      const PCRE2_SIZE first = ends[2 * group], last = ends[2 * group + 1];
      match.groups.emplace_back(first == PCRE2_UNSET ? "" : text.substr(first, last - first));
    }
    return match;
  }
  if (result == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (result == PCRE2_ERROR_MATCHLIMIT || result == PCRE2_ERROR_HEAPLIMIT ||
      result == PCRE2_ERROR_DEPTHLIMIT) {
    throw PatternError(
        tr("'{}' takes more than {} steps to match '{}'", state_->pattern, state_->max_steps, text),
        tr("a repeated group that holds a repetition, such as (.*)*, does that: write .*"));
  }
  throw PatternError(
      tr("'{}' cannot be matched against '{}': {}", state_->pattern, text, pcre_text(result)));
}

bool Pattern::matches(std::string_view text) const {
  return find_from(text, 0, PCRE2_ANCHORED | PCRE2_ENDANCHORED).has_value();
}

bool Pattern::is_found_in(std::string_view text) const { return find_from(text, 0, 0).has_value(); }

std::optional<std::string> Pattern::last_group(std::string_view text) const {
  std::optional<Match> match = find_from(text, 0, PCRE2_ANCHORED | PCRE2_ENDANCHORED);
  if (!match) return std::nullopt;
  return match->groups.empty() ? std::string(text) : std::move(match->groups.back());
}

std::optional<Pattern::Match> Pattern::find(std::string_view text) const {
  return find_from(text, 0, 0);
}

std::vector<Pattern::Match> Pattern::find_all(std::string_view text) const {
  std::vector<Match> all;
  uint32_t options = 0;
  size_t at = 0;
  while (std::optional<Match> match = find_from(text, at, options)) {
    at = match->end;
    // Python lets an empty match follow at the same place, but not a second one.
    options = match->begin == match->end ? PCRE2_NOTEMPTY_ATSTART : 0;
    all.push_back(std::move(*match));
  }
  return all;
}

std::string Pattern::removed_from(std::string_view text) const {
  std::string rest;
  size_t at = 0;
  for (const Match& match : find_all(text)) {
    rest += text.substr(at, match.begin - at);
    at = match.end;
  }
  return rest += text.substr(at);
}

std::string Pattern::expanded(std::string_view replacement, std::string_view text,
                              const Match& match) const {
  std::string out;
  const auto append_group = [&](std::string_view digits) {
    size_t group = 0;
    const auto got = std::from_chars(digits.data(), digits.data() + digits.size(), group);
    if (got.ec != std::errc() || got.ptr != digits.data() + digits.size() ||
        group > match.groups.size()) {
      throw PatternError(
          tr("'{}' names a group that '{}' does not have", replacement, state_->pattern));
    }
    out += group == 0 ? text.substr(match.begin, match.end - match.begin)
                      : std::string_view(match.groups[group - 1]);
  };
  for (size_t i = 0; i < replacement.size(); ++i) {
    if (replacement[i] != '\\' || i + 1 == replacement.size()) {
      out += replacement[i];
      continue;
    }
    const char c = replacement[++i];
    const size_t close = c == 'g' ? replacement.find('>', i) : std::string_view::npos;
    if (c >= '0' && c <= '9') {
      append_group(replacement.substr(i, 1));
    } else if (close != std::string_view::npos && replacement[i + 1] == '<') {
      append_group(replacement.substr(i + 2, close - i - 2));
      i = close;
    } else {
      out += c == 'n' ? '\n' : c == 't' ? '\t' : c;
    }
  }
  return out;
}

std::string Pattern::replaced(std::string_view text, std::string_view replacement,
                              int64_t count) const {
  std::string out;
  size_t at = 0;
  int64_t done = 0;
  for (const Match& match : find_all(text)) {
    out += text.substr(at, match.begin - at);
    out += expanded(replacement, text, match);
    at = match.end;
    if (++done == count) break;
  }
  return out += text.substr(at);
}

bool looks_like_pattern(std::string_view text) {
  return text.find_first_of("*+?[](){}|^$\\") != std::string_view::npos;
}

}  // namespace danlu
