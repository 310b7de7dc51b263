// train/run_dir/progress.h: what a run has done so far, as trainer_state.json keeps it.
#pragma once
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "train/prepare_data.h"
#include "train/settings.h"
#include "train/step.h"

namespace danlu::train {

/// Sums over the steps since the last record of logging.jsonl.
struct LogWindow {
  int64_t steps = 0, tokens = 0, samples = 0, visual_tokens = 0;
  int64_t counted = 0;  ///< steps whose loss counts: those not skipped
  double loss = 0, seconds = 0, wait_s = 0;
  struct OfSteps {
    double sum = 0;
    int64_t steps = 0;  ///< of those that count, which gave it
  };
  std::map<std::string, OfSteps> metrics;
  std::map<std::string, double> times;  ///< seconds, of data::StepStream::times()

  /// data_wait_s: for the step's batches, beside what the passes waited for pixels.
  void add(const StepResult& result, double step_s, double data_wait_s,
           const std::map<std::string, double>& step_times = {});
};

struct RunProgress {
  /// Least of the evaluations' losses, or of their best_metric, with the other sign where its
  /// greatest is best.
  double best_loss = std::numeric_limits<double>::infinity();
  int64_t best_step = 0;  ///< 0: none yet
  int64_t evaluations_since_best = 0;
  double train_seconds = 0;  ///< of all sessions, evaluation and saving left out
  double loss_sum = 0;       ///< summed step losses of all steps that counted
  int64_t loss_steps = 0;
  std::string best_metric = {};  ///< as OutputConfig's
  bool best_is_greatest = false;
  double best_value() const { return best_is_greatest ? -best_loss : best_loss; }
  LogWindow window;  ///< so that a run resumed between two records logs what it would have
  Json log_history = Json::array();
  double lowest_loss =
      std::numeric_limits<double>::infinity();  ///< of all evaluations, saved or not
  double lowest_when_saved = std::numeric_limits<double>::infinity();  ///< at the last that counted
  std::vector<int64_t> saved_as_best;  ///< steps that were saved for their evaluation alone

  /// Whether so many evaluations in a row found nothing better; limit 0: never.
  bool stops_early(int64_t limit) const { return limit > 0 && evaluations_since_best >= limit; }
  /// The best step's checkpoint is in another run's directory, or gone.
  void forget_best() {
    best_loss = std::numeric_limits<double>::infinity();
    best_step = evaluations_since_best = 0;
    lowest_loss = lowest_when_saved = best_loss;
    saved_as_best.clear();
  }
  /// Instead of evaluations: a checkpoint counts if nothing better was found since the last.
  void count_checkpoint() {
    if (lowest_loss == std::numeric_limits<double>::infinity()) return;  // nothing was evaluated
    evaluations_since_best = lowest_loss < lowest_when_saved ? 0 : evaluations_since_best + 1;
    lowest_when_saved = lowest_loss;
  }
};

/// trainer_state.json: Hugging Face's keys, and what resuming needs. `identity`: as run_identity.
Json trainer_state(const RunProgress& progress, const TrainState& state, const RunPlan& plan,
                   const Json& identity, double epoch);
void restore_progress(const Json& saved, RunProgress& progress, TrainState& state);

/// data_state.json. stream: data::StepStream::state().
Json data_state(const PreparedData& data, int64_t consumed_samples, Json stream);

}  // namespace danlu::train
