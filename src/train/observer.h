// train/observer.h: what a run tells about itself: to the terminal, to files, to plots.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "base/json.h"
#include "train/evaluate.h"
#include "train/report/step_record.h"
#include "train/settings.h"

namespace danlu::train {

struct RunSummary {
  int64_t steps = 0, samples = 0, tokens = 0, skipped_steps = 0;
  double train_seconds = 0, mean_loss = 0;
  double best_eval_loss = 0;
  int64_t best_step = 0;
  std::filesystem::path model_directory, best_checkpoint, last_checkpoint;
  std::string next_command;
  std::string best_metric = {};  ///< what best_eval_loss is of; empty: the loss
};

class RunObserver {
 public:
  virtual ~RunObserver() = default;
  /// Returns the record as logging.jsonl holds it (for log_history).
  virtual Json on_step(const StepRecord& record) = 0;
  virtual Json on_evaluation(const Evaluation& evaluation, int64_t step, int64_t total_steps,
                             double epoch) = 0;
  /// Called from another thread while a step or an evaluation takes long.
  virtual void on_slow(const std::string& line) = 0;
  virtual void on_finish(const RunSummary& summary) = 0;
  /// Looks whether the run's directory is still there. If it was removed, makes it again with what
  /// was logged (`history`) and says what is lost. If that fails, says so once. Errors: IoError if
  /// it fails and the directory is `needed`.
  virtual void look_after_directory(const Json& history, bool needed) = 0;
};

/// What a rank keeps in the run's directory.
struct DirectoryHold {
  /// Whether no other run can have begun there.
  std::function<bool()> is_ours;
  /// Makes the directory again after it was removed. Errors: IoError.
  std::function<void()> make_again;
};

/// What the reports say about the model and its data beside the figures.
struct RunDescription {
  int64_t num_train_samples = 0;
  std::string data_hash;
  bool from_scratch = false;
};

/// Terminal, logging.jsonl, TensorBoard, pictures, model card: whatever the configuration asks for.
/// start_step > 0: an earlier run's files are continued.
std::unique_ptr<RunObserver> make_observer(const TrainConfig& config, const RunPlan& plan,
                                           int64_t start_step, const RunDescription& description,
                                           DirectoryHold hold);
/// Shows nothing; for ranks whose figures another rank shows.
std::unique_ptr<RunObserver> make_silent_observer(DirectoryHold hold);

}  // namespace danlu::train
