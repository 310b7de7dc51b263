// train/passes.h: the passes of one step through a stage of the model, in a schedule's order.
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "arch/pipeline.h"
#include "optim/grad_buffer.h"
#include "settings/prediction_training.h"
#include "settings/router_training.h"
#include "train/action_trace.h"
#include "train/objective.h"
#include "train/stage_links.h"

namespace danlu::train {

/// Sums over this rank's micro-batches.
struct PassSums {
  double loss = 0;              ///< 0 unless this is the last stage
  Metrics metrics = {};         ///< the objective's; empty unless this is the last stage
  models::PassResults results;  ///< what the stage's layers gave
  double pixels_wait_s = 0;     ///< seconds in which passes waited for pixels
};

/// What all passes of a step have in common.
struct StepFactors {
  uint64_t dropout_seed = 0;
  double noise_alpha = 0;  ///< of the noise on embeddings (train/batch_input.h)
  bool drops = true;       ///< whether adapters have their dropout
  double scale = 1;        ///< the factor of every loss before its backward
  settings::RouterTraining routers = {};
  settings::PredictionTraining prediction = {};
  double weight_of_target = 1;  ///< of the step's weight, how much one target has on average
};

class Passes {
 public:
  /// All arguments outlive the object. observer: hears of every action; may be nullptr.
  Passes(const models::CausalLM& stage, const Objective& objective, optim::GradBuffer& gradients,
         StageLinks& links, ActionObserver* observer = nullptr);
  /// Carries out `schedule`. batches: this rank's batches that weigh anything. If other ranks of
  /// the data axis have more, the schedule has more micro-batches, and in these this rank only
  /// joins in exchanges. columns: what the objective prepared for each batch. Collective over the
  /// data axis and the pipeline; every stage gets the same batches.
  PassSums run(const arch::Schedule& schedule, const std::vector<const data::Batch*>& batches,
               const std::vector<Columns>& columns, const StepFactors& factors);

 private:
  /// A micro-batch between its forward and its backward.
  struct Flight {
    at::Tensor entered;  ///< what the stage before gave; undefined on the first
    at::Tensor left;     ///< hidden states for the next stage, or the loss
    at::Tensor grad;     ///< the gradient of `left`; on the last stage the scale
    const Columns* columns = nullptr;
    ops::LaterWork later;
  };
  void expect(const arch::Schedule& schedule, const std::vector<const data::Batch*>& batches);
  double weight_of_target(const data::Batch& batch) const;
  void ask_for_predictions(const data::Batch& batch, models::ForwardInput& input) const;
  void forward(Flight& flight, const data::Batch& batch, int64_t chunk);
  /// last: no further backward of the step goes through this chunk. later: gradients of weights are
  /// left in flight.later.
  void backward(Flight& flight, bool is_idle, int64_t chunk, bool last, bool later);
  void act(const arch::Action& action, const data::Batch* batch, bool last, Flight& flight);

  const models::CausalLM& stage_;
  const Objective& objective_;
  optim::GradBuffer& gradients_;
  StageLinks& links_;
  ActionObserver* observer_;
  StepFactors factors_;
  /// One loss for each micro-batch, on the device. They are read after the last one, because
  /// reading waits for the device.
  std::vector<at::Tensor> losses_;
  MetricSums metrics_;
  models::PassResults results_;
  double pixels_wait_s_ = 0;
};

}  // namespace danlu::train
