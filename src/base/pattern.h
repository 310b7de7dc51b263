// base/pattern.h: regular expressions that people write into flags and files, matched against
// names and against what models say.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace danlu {

/// What is wrong with a pattern: "'(' is not a valid regular expression: …".
class PatternError : public UsageError {
 public:
  using UsageError::UsageError;
};

/// What a pattern is for.
enum class PatternUse {
  kNames,  ///< \d, \w, \s and \b know ASCII; few steps
  kText,   ///< they know Unicode, as Python's `re` on str (whose \s also takes U+001C to U+001F);
           ///< a hundred times the steps
};

/// A compiled pattern in Perl's dialect (PCRE2), which Python's `re` shares for all that names and
/// scoring need; what both write and mean differently ("{,n}", \Z, \v, \uXXXX) means what Python
/// does. Matching takes a bounded number of steps: "(.*)*(.*)*x" is an error, not an endless
/// search. Thread-safe.
class Pattern {
 public:
  /// Errors: PatternError with the place of the mistake.
  explicit Pattern(const std::string& pattern, PatternUse use = PatternUse::kNames);
  ~Pattern();
  Pattern(Pattern&&) noexcept;
  Pattern& operator=(Pattern&&) noexcept;

  /// The whole of `text` (Python's fullmatch). Errors: PatternError if it takes too many steps.
  bool matches(std::string_view text) const;
  /// Any part of `text` (Python's search). Errors: as matches.
  bool is_found_in(std::string_view text) const;
  /// What the pattern's last group holds where the whole of `text` matches. Errors: as matches.
  std::optional<std::string> last_group(std::string_view text) const;

  struct Match {
    size_t begin = 0, end = 0;        ///< bytes
    std::vector<std::string> groups;  ///< from group 1 on; empty where one took no part
  };
  /// Every match that does not overlap one before it (Python's finditer: an empty one may stand
  /// where the one before it ended). Errors: as matches.
  std::vector<Match> find_all(std::string_view text) const;
  /// The first of them. Errors: as matches.
  std::optional<Match> find(std::string_view text) const;
  /// `text` without the matches (Python's sub with ""). Errors: as matches.
  std::string removed_from(std::string_view text) const;
  /// `text` with the first `count` matches (0: all) replaced, as Python's sub does: \1 and \g<1> in
  /// `replacement` are groups, \n and \t what they are elsewhere. Errors: as matches; PatternError
  /// of a group that the pattern does not have.
  std::string replaced(std::string_view text, std::string_view replacement,
                       int64_t count = 0) const;

 private:
  std::string expanded(std::string_view replacement, std::string_view text,
                       const Match& match) const;
  std::optional<Match> find_from(std::string_view text, size_t begin, uint32_t options) const;
  bool run(std::string_view text, uint32_t options, std::string* last_group = nullptr) const;
  struct State;
  std::unique_ptr<State> state_;
};

/// Whether a word that may be a name or a pattern holds a character that no name has.
bool looks_like_pattern(std::string_view text);

}  // namespace danlu
