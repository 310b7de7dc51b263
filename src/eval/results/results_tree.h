// eval/results/results_tree.h: in which order tasks and groups stand, and what belongs to what.
#pragma once
#include <string>
#include <vector>

#include "eval/results/results.h"

namespace danlu::eval {

struct TreeRow {
  size_t depth = 0;
  const Task* task = nullptr;  ///< of a leaf
  const Group* group = nullptr;
  const TaskResult* result = nullptr;
  /// The name, indented as lm-eval does it: "mmlu", " - stem", "  - anatomy".
  std::string alias() const;
};

/// Groups that are in no other, each with all that is in it, then the leaves that are in none. What
/// is in several groups stands in the first alone.
std::vector<TreeRow> tree_rows(const Evaluation& evaluation);

}  // namespace danlu::eval
