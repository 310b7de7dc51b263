// eval/scoring/scores.h: answers become numbers: per item, per task, per group.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "eval/item.h"
#include "eval/task.h"

namespace danlu::eval {

/// What one filter of a task made of an item's answers.
struct ItemScore {
  std::string filter;
  Json filtered = {};  ///< the answers as the metrics saw them
  /// Name in results -> number, or what its aggregation wants: [log-likelihood, words] of
  /// word_perplexity. What is measured elsewhere (eval/scoring/metrics.h) is not there until who
  /// measures it puts it in, by the metric's own name: of "pass@k" [answers, of them right].
  std::map<std::string, Json> values = {};
  bool is_near_tie = false;     ///< the choice hangs on less than rounding (kNearTie)
  Json notes = Json::object();  ///< what stands beside the values in the samples file
};

/// Relative distance of the two best choices below which batching may decide between them.
inline constexpr double kNearTie = 1e-5;

/// Whether a metric of the task looks at context and continuation together:
/// Answer::whole_log_likelihood is needed.
bool wants_whole(const Task& task);

/// Reads what the task says about filters and metrics, before a model answers for hours.
/// Errors: UsageError naming task, filter or metric, and what is wrong: the task file is.
void check_scoring(const Task& task);

/// The scores of one item, by every filter of the task.
/// REQUIRES: an answer for each call; check_scoring passed.
/// Errors: NumericError naming task and item if a likelihood is NaN; DataError if the item's target
/// is none of its choices.
std::vector<ItemScore> score_item(const Task& task, const Item& item,
                                  const std::vector<Answer>& answers);

struct MetricResult {
  std::string metric, filter;
  double value = 0;
  std::optional<double> stderr_value;  ///< none where it is not defined
  bool higher_is_better = true;
};

struct TaskResult {
  std::string name, alias;
  int64_t num_items = 0, num_original = 0;  ///< with and without --limit
  int64_t num_near_ties = 0;
  int64_t num_cut_contexts = 0;  ///< items of which a context did not fit; set by the runner
  std::string hash = {};  ///< of a leaf: TaskHash (eval/results/samples.h); set by the runner
  std::vector<MetricResult> metrics = {};
  std::vector<TaskResult> leaves = {};  ///< of a group: those it was made of, each once
};

/// One of a task, from the scores of all its items (scores[i]: of item i, by filter).
/// num_original is the number of items until the runner sets it.
/// Errors: DataError without items.
TaskResult aggregate(const Task& task, const std::vector<std::vector<ItemScore>>& scores);

/// One of a group, from those of its members (leaves, or groups made before it, which stand for
/// their leaves): the mean over all items and its pooled standard error, or over all leaves; with
/// weights that of the members themselves.
/// A metric counts where leaves have it. Errors: DataError if none has any.
TaskResult aggregate_group(const Group& group, const std::vector<TaskResult>& members);

}  // namespace danlu::eval
