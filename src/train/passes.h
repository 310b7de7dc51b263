// train/passes.h: the passes of one step through a stage of the model, in a schedule's order.
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "arch/pipeline.h"
#include "optim/grad_buffer.h"
#include "train/action_trace.h"
#include "train/objective.h"
#include "train/stage_links.h"

namespace danlu::train {

/// Sums over this rank's micro-batches.
struct PassSums {
  double loss = 0;              ///< of a last stage, else 0
  Metrics metrics = {};         ///< the objective's, of a last stage
  models::PassResults results;  ///< what the stage's layers gave
};

class Passes {
 public:
  /// What is given outlives it. observer: told of every action, if there is one.
  Passes(const models::CausalLM& stage, const Objective& objective, optim::GradBuffer& gradients,
         StageLinks& links, ActionObserver* observer = nullptr);
  /// batches: those of this rank that weigh anything; where others of the data axis have more, the
  /// schedule's further micro-batches are passes of nothing. scale: put on every sum before its
  /// backward. Collective over the data axis and the pipeline, whose stages have the same batches.
  /// columns: what the objective prepared for each batch.
  PassSums run(const arch::Schedule& schedule, const std::vector<const data::Batch*>& batches,
               const std::vector<Columns>& columns, uint64_t dropout_seed, double scale);

 private:
  /// A micro-batch between its forward and its backward.
  struct Flight {
    at::Tensor entered;  ///< what the stage before gave; undefined on the first
    at::Tensor left;     ///< hidden states for the next stage, or the loss
    at::Tensor grad;     ///< of `left`; on the last stage the scale
    const Columns* columns = nullptr;
    ops::LaterWork later;
  };
  void expect(const arch::Schedule& schedule, const std::vector<const data::Batch*>& batches);
  void forward(Flight& flight, const data::Batch& batch, int64_t chunk);
  /// last: through this chunk in the step. later: weights' gradients are left to the flight.
  void backward(Flight& flight, bool is_idle, int64_t chunk, bool last, bool later);
  void act(const arch::Action& action, const data::Batch* batch, bool last, Flight& flight);

  const models::CausalLM& stage_;
  const Objective& objective_;
  optim::GradBuffer& gradients_;
  StageLinks& links_;
  ActionObserver* observer_;
  uint64_t dropout_seed_ = 0;
  double scale_ = 1;
  /// Of each micro-batch, where it was computed: read, which waits for it, after the last.
  std::vector<at::Tensor> losses_;
  MetricSums metrics_;
  models::PassResults results_;
};

}  // namespace danlu::train
