#include "base/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>
#include <vector>

namespace danlu {
namespace {

/// Enough for any sensible pattern on a name of some hundred characters; a runaway one meets it
/// after some tens of milliseconds.
constexpr uint32_t kMatchLimit = 1'000'000;
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

/// Python reads "{,n}" as "{0,n}"; PCRE2 takes it literally before its version 10.43.
PythonPattern with_lower_bounds(std::string_view pattern) {
  PythonPattern out;
  for (size_t at = 0; at < pattern.size();) {
    size_t end = at + 1;
    if (pattern[at] == '\\') {
      end = at + 2;
    } else if (pattern[at] == '[') {
      end = class_end(pattern, at) + 1;
    } else if (pattern.substr(at, 2) == "{,") {
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
  pcre2_code_8* code = nullptr;
  pcre2_match_context_8* limits = nullptr;
  ~State() {
    pcre2_match_context_free_8(limits);
    pcre2_code_free_8(code);
  }
};

Pattern::Pattern(const std::string& pattern) : state_(std::make_unique<State>()) {
  state_->pattern = pattern;
  int error = 0;
  PCRE2_SIZE offset = 0;
  const PythonPattern python = with_lower_bounds(pattern);
  state_->code =
      pcre2_compile_8(reinterpret_cast<PCRE2_SPTR8>(python.text.data()), python.text.size(),
                      PCRE2_UTF | PCRE2_MATCH_INVALID_UTF, &error, &offset, nullptr);
  if (!state_->code) {
    offset -= static_cast<size_t>(std::count_if(python.added.begin(), python.added.end(),
                                                [&](size_t at) { return at < offset; }));
    throw PatternError(tr("'{}' is not a valid regular expression: {} (at character {})", pattern,
                          pcre_text(error), offset));
  }
  state_->limits = pcre2_match_context_create_8(nullptr);
  if (!state_->limits) throw std::bad_alloc();
  pcre2_set_match_limit_8(state_->limits, kMatchLimit);
  pcre2_set_heap_limit_8(state_->limits, kHeapLimitKb);
}

Pattern::~Pattern() = default;
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern& Pattern::operator=(Pattern&&) noexcept = default;

bool Pattern::run(std::string_view text, uint32_t options, std::string* last_group) const {
  const std::unique_ptr<pcre2_match_data_8, decltype(&pcre2_match_data_free_8)> data(
      pcre2_match_data_create_from_pattern_8(state_->code, nullptr), pcre2_match_data_free_8);
  pcre2_match_data_8* found = data.get();
  if (!found) throw std::bad_alloc();
  const int result = pcre2_match_8(state_->code, reinterpret_cast<PCRE2_SPTR8>(text.data()),
                                   text.size(), 0, options, found, state_->limits);
  if (result >= 0) {
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer_8(found);
    const uint32_t last = 2 * (pcre2_get_ovector_count_8(found) - 1);
    if (last_group && ends[last] != PCRE2_UNSET)
      *last_group = text.substr(ends[last], ends[last + 1] - ends[last]);
    return true;
  }
  if (result == PCRE2_ERROR_NOMATCH) return false;
  if (result == PCRE2_ERROR_MATCHLIMIT || result == PCRE2_ERROR_HEAPLIMIT ||
      result == PCRE2_ERROR_DEPTHLIMIT) {
    throw PatternError(
        tr("'{}' takes more than {} steps to match '{}'", state_->pattern, kMatchLimit, text),
        tr("a repeated group that holds a repetition, such as (.*)*, does that: write .*"));
  }
  throw PatternError(
      tr("'{}' cannot be matched against '{}': {}", state_->pattern, text, pcre_text(result)));
}

bool Pattern::matches(std::string_view text) const {
  return run(text, PCRE2_ANCHORED | PCRE2_ENDANCHORED);
}

bool Pattern::is_found_in(std::string_view text) const { return run(text, 0); }

std::optional<std::string> Pattern::last_group(std::string_view text) const {
  std::string group;
  if (!run(text, PCRE2_ANCHORED | PCRE2_ENDANCHORED, &group)) return std::nullopt;
  return group;
}

bool looks_like_pattern(std::string_view text) {
  return text.find_first_of("*+?[](){}|^$\\") != std::string_view::npos;
}

}  // namespace danlu
