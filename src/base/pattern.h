// base/pattern.h: regular expressions that people write into flags and files, matched against
// names.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace danlu {

/// What is wrong with a pattern: "'(' is not a valid regular expression: …".
class PatternError : public UsageError {
 public:
  using UsageError::UsageError;
};

/// A compiled pattern in Perl's dialect (PCRE2), which Python's `re` shares for all that names
/// need. Matching takes a bounded number of steps: "(.*)*(.*)*x" is an error, not an endless
/// search. Thread-safe.
class Pattern {
 public:
  /// Errors: PatternError with the place of the mistake.
  explicit Pattern(const std::string& pattern);
  ~Pattern();
  Pattern(Pattern&&) noexcept;
  Pattern& operator=(Pattern&&) noexcept;

  /// The whole of `text` (Python's fullmatch). Errors: PatternError if it takes too many steps.
  bool matches(std::string_view text) const;
  /// Any part of `text` (Python's search). Errors: as matches.
  bool is_found_in(std::string_view text) const;
  /// What the pattern's last group holds where the whole of `text` matches. Errors: as matches.
  std::optional<std::string> last_group(std::string_view text) const;

 private:
  bool run(std::string_view text, uint32_t options, std::string* last_group = nullptr) const;
  struct State;
  std::unique_ptr<State> state_;
};

/// Whether a word that may be a name or a pattern holds a character that no name has.
bool looks_like_pattern(std::string_view text);

}  // namespace danlu
