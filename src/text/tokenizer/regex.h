// text/tokenizer/regex.h: regular expressions as Oniguruma reads them, run by PCRE2's JIT.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace danlu::text {

/// A compiled pattern. Thread-safe.
class Regex {
 public:
  /// The dialect is HF's (Oniguruma, Unicode); what PCRE2 would read differently is translated.
  /// Errors: ModelError naming `origin`, the pattern and the place.
  Regex(std::string_view pattern, const std::string& origin);
  ~Regex();
  Regex(const Regex&) = delete;
  Regex& operator=(const Regex&) = delete;

  /// Calls on_match(begin, end) for all matches, left to right, without overlap.
  /// REQUIRES: text is valid UTF-8.
  template <typename F>
  void find_all(std::string_view text, F&& on_match) const {
    std::string storage;
    text = with_stand_ins(text, storage);
    size_t from = 0, begin = 0, end = 0;
    size_t last_end = std::string_view::npos;
    while (from <= text.size() && find(text, from, begin, end)) {
      if (begin == end && begin == last_end) {
        from = next_char(text, from);
        continue;
      }
      on_match(begin, end);
      last_end = end;
      from = begin == end ? next_char(text, end) : end;
    }
  }

 private:
  /// First match at or after `from`.
  bool find(std::string_view text, size_t from, size_t& begin, size_t& end) const;
  /// The same text to a pattern, but without characters that PCRE2's Unicode may be too old (or too
  /// new) for: each becomes an older one of its category and length.
  static std::string_view with_stand_ins(std::string_view text, std::string& storage);
  static size_t next_char(std::string_view text, size_t at) {
    if (at >= text.size()) return text.size() + 1;
    do ++at;
    while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
    return at;
  }
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace danlu::text
