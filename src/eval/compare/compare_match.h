// eval/compare/compare_match.h: which line of one run is which of another's, and what else is
// unlike.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "eval/compare/compare_run.h"

namespace danlu::eval {

struct MatchedLines {
  std::string filter;
  std::vector<std::pair<const SampleLine*, const SampleLine*>> pairs;  ///< in A's order
};

/// What the lines of a task that both runs have say of whether they can be compared.
struct MatchReport {
  std::vector<MatchedLines> filters;  ///< those that both have, in A's order
  int64_t num_items = 0;              ///< matched, of the first filter
  int64_t only_a = 0, only_b = 0;
  int64_t by_place = 0;                          ///< of the matched: by place and answer alone
  int64_t other_prompts = 0, other_targets = 0;  ///< of the matched
};

/// Lines are matched by the hash of their row, equal rows by their order; what is left (a row whose
/// right answer was changed) by its place and prompt; what is then left (a row kept in another
/// form, as another program does, and asked otherwise) by its place and right answer, if these say
/// that both runs number their rows alike.
MatchReport match_lines(const std::vector<SampleLine>& a, const std::vector<SampleLine>& b);

/// Differences of how the runs were made, a sentence each: style, limit, chat template, system
/// instruction, shots and versions of the tasks that both have.
std::vector<std::string> unlike_settings(const RunFiles& a, const RunFiles& b);

}  // namespace danlu::eval
