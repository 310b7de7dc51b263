// eval/results/results.h: what an evaluation came to: results_<time>.json in the harness's form,
// and the table for the terminal.
#pragma once
#include <chrono>
#include <string>
#include <vector>

#include "base/file.h"
#include "eval/scoring/scores.h"
#include "eval/task.h"

namespace danlu::eval {

/// The commit of the source that this was built from, with a "+" where files differed from it;
/// empty: not known. Made by the build.
extern const char* const kSourceCommit;

/// How the numbers came about.
struct RunInfo {
  std::string time_id;       ///< in the names of all files of a run: see make_time_id
  std::string model_name;    ///< path or repository, as typed
  std::string style;         ///< "lm-eval", "mindspeed", …
  std::string version = {};  ///< of the program
  std::string commit = {};   ///< of its source; may be empty
  /// lm-eval's "config", written as it is: model, model_args, batch_size, device, dtype, limit,
  /// gen_kwargs, random_seed, numpy_seed, fewshot_seed, …
  Json config = Json::object();
  std::string system_instruction = {}, chat_template = {};  ///< empty: none
  bool fewshot_as_multiturn = false;
  int64_t start_time_s = 0;  ///< since 1970
  double duration_s = 0;
};

/// A finished evaluation. results[i] is of tasks[i], group_results[i] of groups[i]; groups stand
/// before the groups and leaves that are in them.
struct Evaluation {
  RunInfo run;
  std::vector<Task> tasks;
  std::vector<TaskResult> results;
  std::vector<Group> groups = {};
  std::vector<TaskResult> group_results = {};
};

/// "2026-11-25T13-35-15.123456": local time, so that names sort by age.
std::string make_time_id(std::chrono::system_clock::time_point now);

/// lm-eval's results, groups, group_subtasks, configs, versions, n-shot, higher_is_better,
/// n-samples, config, task_hashes, …; of our own style, differences (a list for each task that has
/// some), near_ties, cut_contexts, group_weighting ("size", "equal", or the weights of its
/// members), group_subjects ({"asked": 12, "of": 57} of a group of which files are not there) and
/// danlu {version, commit}.
Json results_json(const Evaluation& evaluation);

/// Writes results_<time>.json into `directory`, which is made, and returns its path.
/// Errors: IoError (disk full, not writable); files that were there stay as they are.
fs::path write_results(const fs::path& directory, const Evaluation& evaluation);

/// lm-eval's tables: all tasks in the order of their groups, members indented; after them the
/// groups alone if there are any.
std::string results_table(const Evaluation& evaluation);

}  // namespace danlu::eval
