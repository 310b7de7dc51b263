// eval/compare/compare_run.h: a finished evaluation as its files tell it, our own or the harness's.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"

namespace danlu::eval {

/// A line of samples_<task>_<time>.jsonl, as far as runs are compared by it.
struct SampleLine {
  Json doc_id;
  std::string doc_hash, prompt_hash, target_hash, filter;
  std::string target, answer;  ///< as shown: of a multiple choice place and text
  std::map<std::string, Json> values;
};

struct RunFiles {
  fs::path results_path;
  Json results;                                            ///< the whole file
  std::map<std::string, std::vector<SampleLine>> samples;  ///< task -> its lines, in order
  std::string model_name() const;
  /// results[section][name], or null.
  Json at(const char* section, const std::string& name) const;
};

/// The results file that `run` names: itself, or the newest results_*.json in a directory or in one
/// right below it. Errors: DataError if there is no such path, or it holds none.
fs::path find_results(const fs::path& run);

/// Reads the results that `run` names, and the samples beside them that have the same time.
/// Errors: as find_results; DataError naming file and line (broken JSON, no results, a line without
/// hashes), or if there are no samples.
RunFiles read_run(const fs::path& run);

}  // namespace danlu::eval
