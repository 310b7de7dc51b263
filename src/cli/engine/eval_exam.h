// cli/engine/eval_exam.h: what `danlu eval` is to ask: each task with the rows that it asks about.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/options.h"
#include "cli/engine/eval_arguments.h"
#include "eval/benchmarks/benchmark.h"
#include "eval/benchmarks/prompts.h"
#include "eval/benchmarks/rows.h"
#include "eval/model.h"
#include "eval/scoring/scores.h"

namespace danlu::cli {

struct EvalPlan;

/// A task, where its items come from, and what is measured of answers beside what
/// eval/scoring/scores.h reads in them.
class Exam {
 public:
  explicit Exam(eval::Task task) : task_(std::move(task)) {}
  virtual ~Exam() = default;

  const eval::Task& task() const { return task_; }
  /// Answers alone are wanted.
  void leave_unscored() { task_.metrics.clear(); }
  /// Rows of the whole split, and those that are asked.
  virtual int64_t num_original() const = 0;
  virtual int64_t size() const = 0;
  /// Items [from, returned end) of those, as many as are to be in memory at a time; at least one.
  /// REQUIRES: from < size(). `model`: its chat template, where one is applied.
  virtual std::vector<eval::Item> items(int64_t from, const eval::Model& model) = 0;
  /// Values of metrics that only who knows the rows can measure, and what they were measured of:
  /// into scores[i] of item i.
  virtual void measure(const std::vector<eval::Item>& items,
                       const std::vector<std::vector<eval::Answer>>& answers,
                       std::vector<std::vector<eval::ItemScore>>& scores);
  /// Whether measure() is to have the machine for itself.
  virtual bool wants_quiet() const { return false; }
  /// When all items are scored: what else there is to write beside the results. `stem`: how its
  /// files' names end, before the extension.
  virtual void write_pictures(const std::filesystem::path& directory, const std::string& stem);

 protected:
  eval::Task task_;
};

/// A benchmark whose rows lie in files.
class RowsExam : public Exam {
 public:
  /// `plan` outlives it.
  RowsExam(eval::Task task, eval::TaskRows rows, const EvalPlan& plan)
      : Exam(std::move(task)), rows_(std::move(rows)), plan_(plan) {}

  int64_t num_original() const override;
  int64_t size() const override;
  std::vector<eval::Item> items(int64_t from, const eval::Model& model) override;

 private:
  eval::TaskRows rows_;
  const EvalPlan& plan_;
};

struct EvalPlan {
  std::vector<std::unique_ptr<Exam>> exams = {};
  std::vector<eval::Group> groups = {};
  eval::PromptSettings prompts;
  GenerationOverrides generation;
};

/// The folder of a benchmark's data: in --data_dir, else in the hubs' caches, into which --download
/// fetches it. Errors: DataError: it is not here, with what to type.
std::filesystem::path data_folder_of(const Options& options, const eval::Benchmark& benchmark);

/// All benchmarks that there are: those of --include_path too. Errors: as eval::Catalogue.
eval::Catalogue catalogue_of(const Options& options);

/// What --tasks list prints.
std::string list_of_tasks(const eval::Catalogue& catalogue, const std::string& style);

/// Chooses tasks, finds their data, reads their rows: all that can be wrong without a model is said
/// here. Errors: UsageError (no task, an unknown one, code that may not be run); DataError (data
/// that are missing or broken).
std::unique_ptr<EvalPlan> make_eval_plan(const Options& options);

}  // namespace danlu::cli
