// eval/compare/compare.h: two evaluations, item by item: what changed, and whether that is chance.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "eval/compare/compare_statistics.h"
#include "pictures/painter.h"

namespace danlu::eval {

struct ChangedItem {
  Json doc_id;
  std::string target, answer_a, answer_b;
  double a = 0, b = 0;
};

/// One metric of a task or group, over the items that both runs have.
struct MetricComparison {
  std::string metric, filter;
  bool higher_is_better = true;
  int64_t num_items = 0;
  double a = 0, b = 0;
  std::optional<double> stderr_a, stderr_b;
  int64_t num_better = 0, num_worse = 0;  ///< items on which B is better or worse than A
  Interval interval;                      ///< of b - a
  double p_value = 1;
  std::string test;                  ///< "sign_test" (every value is 0 or 1) or "bootstrap"
  std::vector<ChangedItem> changed;  ///< of a task, all, in A's order
};

struct TaskComparison {
  std::string name, alias;
  std::vector<MetricComparison> metrics;
};

struct RunComparison {
  fs::path path_a, path_b;  ///< of the results files
  std::string model_a, model_b;
  /// Why the numbers may not mean the same: other style, shots, prompts, rows, …
  std::vector<std::string> warnings;
  std::vector<TaskComparison> tasks, groups;
};

/// Compares what `a` and `b` name (see find_results). Items are matched by match_lines
/// (eval/compare/compare_match.h). Groups are those of A's results, over the leaves that both runs
/// have. Errors: as read_run; DataError if the runs have no task or no item in common.
RunComparison compare_runs(const fs::path& a, const fs::path& b);

/// For the terminal: a table of groups and tasks, and `max_shown` changed items (0: all).
std::string comparison_text(const RunComparison& comparison, int64_t max_shown);
/// All of it, with every changed item.
Json comparison_json(const RunComparison& comparison);
/// A bar for A and one for B with their standard errors, of each group, or of each task where there
/// are no groups: of each the first metric between 0 and 1, or where none has such a one, 0 and
/// 100. Errors: DataError if there is none; as pictures::paint.
std::string comparison_picture(const RunComparison& comparison, pictures::PictureFormat format);

}  // namespace danlu::eval
