// eval/scoring/filters_choice.h: which of its choices a model's answer names, and matches of
// patterns as Python's findall gives them.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/pattern.h"
#include "eval/item.h"

namespace danlu::eval {

/// Takes the match at `select` of all in `text` (negative: from the end): its first group that is
/// not empty, without groups all of it; stripped. Nothing where there is no such match or all of
/// its groups are empty. Errors: PatternError.
std::optional<std::string> selected_match(const Pattern& pattern, const std::string& text,
                                          int64_t select);

/// `object[key]`, a list of texts, or one text; empty if it is not there.
/// Errors: DataError if it is something else.
std::vector<std::string> texts_of(const Json& object, const char* key);

/// multi_choice_regex of eval/scoring/filters.h.
class ChoiceFinder {
 public:
  /// Choices are the item's, else the row's field "choices". Errors: DataError without any;
  /// PatternError.
  ChoiceFinder(const Json& arguments, const Item& item);
  std::optional<std::string> find(const std::string& text) const;

 private:
  std::string without_ignored(std::string text) const;
  Pattern pattern_;
  int64_t select_ = 0;
  bool ignore_case_ = false, ignore_punctuation_ = false;
  std::vector<Pattern> ignored_;
  std::vector<std::pair<std::string, std::string>> letters_;  ///< text of a choice, "(A)"
  std::optional<Pattern> choice_texts_, choice_letters_;
};

}  // namespace danlu::eval
