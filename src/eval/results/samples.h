// eval/results/samples.h: samples_<task>_<time>.jsonl, what a model said to each item, in the
// harness's form.
#pragma once
#include <string>
#include <vector>

#include "base/file.h"
#include "eval/results/sha256.h"
#include "eval/scoring/scores.h"

namespace danlu::eval {

/// One line: doc_id, doc, target, arguments, resps, filtered_resps, filter, metrics, doc_hash,
/// prompt_hash, target_hash and the value of each metric, as lm-eval's; after them near_tie and
/// cut_tokens. Answers stand as text, as Python prints them: "-1.5", "False".
Json sample_record(const Task& task, const Item& item, const std::vector<Answer>& answers,
                   const ItemScore& score);

/// lm-eval's hash of a task: of the hashes of all its samples, in order.
class TaskHash {
 public:
  void add(const Json& record);
  std::string hex() const { return hash_.hex(); }

 private:
  Sha256 hash_;
};

/// "samples_<task>_<time>.jsonl".
std::string samples_file_name(const std::string& task, const std::string& time_id);

/// Written aside; commit() gives it its name, until then nothing is there.
class SamplesFile {
 public:
  /// Errors: IoError.
  SamplesFile(const fs::path& directory, const std::string& task, const std::string& time_id);
  /// Errors: IoError (disk full).
  void add(const Json& record);
  void commit() { file_.commit(); }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
  AtomicFile file_;
};

}  // namespace danlu::eval
