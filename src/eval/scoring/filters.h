// eval/scoring/filters.h: from what a model wrote to the answer that is compared.
#pragma once
#include <string>
#include <vector>

#include "eval/item.h"
#include "eval/task.h"

namespace danlu::eval {

/// The answers to one item on their way through a filter: one for each draw, or the one taken.
struct FilteredTexts {
  std::vector<std::string> texts;
  bool is_one = false;
};

/// What is left of `texts` after all steps, in order.
/// Steps and their arguments (defaults are lm-eval's):
///   regex {regex_pattern, group_select, fallback}: all matches as Python's findall, of these the
///     one at group_select (negative: from the end), of its groups the first that is not empty,
///     stripped; `fallback` ("[invalid]") where there is none;
///   pattern_list {patterns, group_select, fallback}: the same with the first that is found;
///   multi_choice_regex {regex_pattern, group_select, fallback, ignore_case, ignore_punctuation,
///     regexes_to_ignore}: the pattern, else the text of a choice, else ":" and its letter; the
///     last two give "(A)", "(B)", …;
///   take_first, take_first_k {k}, majority_vote (the commonest; the earliest of several);
///   lowercase, uppercase, map {mapping_dict, default_value}, remove_whitespace (at both ends),
///   first_line (of the stripped text, stripped), code_fence (what the first fence of three
///     backticks holds, up to the end if it is not closed; the text itself without one),
///   math_answer (the last \boxed{}, else what the last $…$ holds, else what follows the last "=",
///     else the last number; "[invalid]" without one).
/// The target is never looked at. Errors: PatternError; DataError if take_first_k lacks draws.
FilteredTexts apply_filter(const Filter& filter, const Item& item, std::vector<std::string> texts);

/// The names of all steps that apply_filter knows.
std::vector<std::string> filter_names();

/// Errors: DataError naming step and argument: an unknown one, a wrong type, a broken pattern.
void check_filter(const Filter& filter);

}  // namespace danlu::eval
