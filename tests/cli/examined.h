// tests/cli/examined.h: small benchmarks made by the test, and `danlu eval` of a small model with
// them.
#pragma once
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/trained_adapter.h"

namespace danlu::test {

class Examined : public TrainedAdapter {
 protected:
  using Flags = std::map<std::string, std::string>;

  /// Below tasks/ the tasks foxes (multiple choice), talk (generation, numbers by a regex) and tale
  /// (perplexity), and their eight rows in rows/test.jsonl.
  void SetUp() override;

  /// A model with the good tokenizer and width 32; its window is 512. Never change it.
  static std::filesystem::path wide_model();
  /// One with a window of `max_positions`, in the test's folder.
  std::filesystem::path make_model(const std::string& name, int64_t max_positions,
                                   const std::string& model_type = "qwen2") const;
  /// The authors' layout of MMLU: a dev and a test file of each subject, five and eight rows.
  std::filesystem::path write_mmlu(const std::vector<std::string>& subjects) const;
  /// `count` rows like those of rows/test.jsonl, each some words longer than the one before.
  std::filesystem::path write_rows(const std::string& directory, int count) const;

  /// `danlu eval` of wide_model() by tasks/ and rows/ into out/, with `flags` laid over; one whose
  /// text is "-" is left out.
  std::vector<std::string> words_of(const Flags& flags) const;
  ProgramResult examine(const Flags& flags) const { return run(words_of(flags)); }
  /// The same with settings of the program's run.
  ProgramResult examine(const Flags& flags, ProgramSettings settings) const;
  /// The samples that examine(flags), which must succeed, writes into a folder of its own.
  std::vector<nlohmann::json> samples_of(const std::string& task, Flags flags) const;

  /// The one results file of a directory, and the lines of a task's samples.
  nlohmann::json results_in(const std::string& directory) const;
  std::vector<nlohmann::json> samples_in(const std::string& directory,
                                         const std::string& task) const;
  /// Name without its time -> content, of a results file without what a clock says.
  std::map<std::string, std::string> timeless(const std::string& directory) const;
  /// Names in a directory, hidden ones too.
  std::vector<std::string> names_in(const std::string& directory) const;
};

/// The log-likelihoods of a sample, a number for each choice.
std::vector<double> likelihoods(const nlohmann::json& sample);
/// Expects equal items of all samples, and log-likelihoods within `relative`.
void expect_near_samples(const std::vector<nlohmann::json>& a, const std::vector<nlohmann::json>& b,
                         double relative);

}  // namespace danlu::test
