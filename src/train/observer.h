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
};

class RunObserver {
 public:
  virtual ~RunObserver() = default;
  /// Returns the record as logging.jsonl holds it (for log_history).
  virtual Json on_step(const StepRecord& record) = 0;
  virtual Json on_evaluation(const Evaluation& evaluation, int64_t step, int64_t total_steps,
                             double epoch) = 0;
  /// Of a step or an evaluation that takes long, while it runs; from another thread.
  virtual void on_slow(const std::string& line) = 0;
  virtual void on_finish(const RunSummary& summary) = 0;
  /// Looks whether the run's directory is still there; one that was removed is made again, with
  /// what was logged, `history`, and it is said what is lost. Where it cannot be: said once, or, if
  /// it is `needed`, an IoError.
  virtual void look_after_directory(const Json& history, bool needed) = 0;
};

/// What a rank keeps in the run's directory.
struct DirectoryHold {
  /// Whether no other run can have begun there.
  std::function<bool()> is_ours;
  /// After it was removed. Errors: IoError.
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
/// Tells nothing: of ranks that another one speaks for.
std::unique_ptr<RunObserver> make_silent_observer(DirectoryHold hold);

}  // namespace danlu::train
