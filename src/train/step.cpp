#include "train/step.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/rng.h"
#include "models/tensor_io.h"
#include "parallel/agree.h"
#include "train/expert_load.h"
#include "train/passes.h"

namespace danlu::train {
namespace {

struct Counts {
  double weight = 0, targets = 0, tokens = 0, samples = 0, visual_tokens = 0;
};

/// The counts of the whole step, over the data axis: of what is trained on.
Counts counts_of_step(const data::StepBatches& batches, const Objective& objective,
                      const parallel::Mesh& mesh) {
  Counts counts;
  if (mesh.context().rank() == 0) {  // all ranks of that axis have the same batches
    for (const data::Batch& batch : batches.micro_batches) {
      counts.weight += objective.weight(batch);
      counts.samples += static_cast<double>(batch.num_samples);
      // What is only compared with is not trained on.
      const std::optional<data::Batch> part = objective.trained_part(batch);
      const data::Batch& trained = part ? *part : batch;
      counts.targets += static_cast<double>(trained.num_targets);
      counts.tokens += static_cast<double>(trained.ids.size());
      for (const data::MediaSpan& span : trained.media)
        counts.visual_tokens += static_cast<double>(span.count);
    }
  }
  std::vector<double> numbers = {counts.weight, counts.targets, counts.tokens, counts.samples,
                                 counts.visual_tokens};
  sum_over(mesh.batch_ranks(), numbers);
  return {numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]};
}

/// The micro-batches that train anything, whole.
std::vector<const data::Batch*> with_weight(const data::StepBatches& batches,
                                            const Objective& objective) {
  std::vector<const data::Batch*> found;
  for (const data::Batch& batch : batches.micro_batches) {
    if (objective.weight(batch) > 0) found.push_back(&batch);
  }
  return found;
}

[[noreturn]] void throw_unscalable(const TrainState& state, const TrainConfig& config) {
  const std::vector<std::string> bad = state.gradients->non_finite(3);
  throw NumericError(
      tr("[train] step {}: gradients overflow in fp16 even at a loss scale of {:g}, the least that "
         "{} allows{}",
         state.step + 1, state.loss_scaler.scale(), config.flag("min_loss_scale"),
         bad.empty() ? "" : tr(" (first in {})", fmt::join(bad, ", "))),
      tr("use --dtype bf16 or fp32"));
}

/// Whether the loss scale, which is searched for, was too high. A loss that is not finite is none
/// of its doing: gradients alone have it.
bool is_to_repeat(TrainState& state, const StepResult& result, const TrainConfig& config) {
  if (!result.skipped || !std::isfinite(result.loss) || !state.loss_scaler.is_searching())
    return false;
  if (!state.loss_scaler.search_lower()) throw_unscalable(state, config);
  return true;
}

/// Sums the loss and the metrics over all ranks, and puts their values into `result`.
void take_figures(const TrainState& state, const PassSums& sums, double weight,
                  StepResult& result) {
  const parallel::Mesh& mesh = state.model->mesh();
  std::vector<double> loss = {sums.loss};
  sum_over(mesh.batch_ranks(), loss);
  sum_over(mesh.pipeline(), loss);
  take_first(mesh.tensor(), loss);
  result.loss = loss[0] / weight;
  result.metrics =
      values_of(metrics_of_all(*state.objective, *state.model, sums.metrics, sums.results, weight));
}

}  // namespace

void throw_diverged(int64_t step, const std::string& what) {
  throw NumericError(tr("[train] step {}: {}: the training has diverged", step, what),
                     tr("lower --lr or --weight_decay, raise --warmup_ratio, or use --dtype bf16 "
                        "or fp32; earlier checkpoints are intact"));
}

void require_finite(const TrainState& state) {
  const auto check = [&](const char* kind, const std::string& name, const at::Tensor& tensor) {
    if (!models::all_finite(tensor))
      throw_diverged(state.step, tr("{} {} is not finite", kind, name));
  };
  for (const parallel::Unit& unit : state.gradients->store().units()) {
    for (size_t i = 0; unit.trainable && i < unit.parameters.size(); ++i) {
      const parallel::Range part = unit.place_in_share(i);
      check("the weight", unit.parameters[i]->name(),
            unit.shard.narrow(0, part.begin, part.size()));
    }
  }
  // A master beside a finite weight of 16 bits, which is half of it, is finite.
  for (const optim::StatePart& part : state.optimizer->state(/*exact_weights=*/false)) {
    if (!part.values.are_with_weight()) check("the optimizer's", part.name, part.values.f32());
  }
}

namespace {

/// Updates what is trained, or skips the step where its gradients are not finite.
void update(TrainState& state, const TrainConfig& config, const PassSums& sums,
            StepResult& result) {
  state.loss_scaler.update(result.skipped);
  if (result.skipped) {
    result.bad_parameters = state.gradients->non_finite(3);
    ++state.bad_steps_in_row;
    ++state.skipped_steps;
    return;
  }
  // The same 1e-6 as torch's clip_grad_norm_.
  const double clip = config.max_grad_norm > 0
                          ? std::min(1.0, config.max_grad_norm / (result.grad_norm + 1e-6))
                          : 1.0;
  state.optimizer->step(*state.gradients, result.lr, clip / result.loss_scale);
  if (config.routers.bias_update_rate > 0) {
    update_router_biases(*state.model, state.gradients->store(),
                         load_of_all(*state.model, sums.results), config.routers.bias_update_rate);
  }
  state.bad_steps_in_row = 0;
}

}  // namespace

StepResult run_step(TrainState& state, const data::StepBatches& batches, const TrainConfig& config,
                    const settings::ScheduleConfig& schedule) {
  const parallel::Group& batch_ranks = state.model->mesh().batch_ranks();
  const Objective& objective = *state.objective;
  const parallel::Mesh& mesh = state.model->mesh();
  const Counts counts = counts_of_step(batches, objective, mesh);
  StepResult result;
  result.loss_scale = state.loss_scaler.scale();
  result.num_tokens = static_cast<int64_t>(counts.tokens);
  result.num_targets = static_cast<int64_t>(counts.targets);
  result.num_samples = static_cast<int64_t>(counts.samples);
  result.num_visual_tokens = static_cast<int64_t>(counts.visual_tokens);
  if (!(counts.weight > 0)) {
    throw DataError(tr("[train] step {}: none of its {} tokens is learnt from", state.step + 1,
                       result.num_tokens),
                    tr("check the masks: the banner shows a decoded example"));
  }
  result.lr = settings::learning_rate_at(schedule, state.optimizer->updates());

  const std::vector<const data::Batch*> whole = with_weight(batches, objective);
  const std::vector<Columns> columns =
      prepared(objective, ForwardPasses(*state.model, *state.links), whole);
  const TrainedParts own(objective, mesh, whole);
  state.optimizer->take_turns(*state.gradients);
  state.gradients->zero();
  const int64_t stages = mesh.shape().pipeline, chunks = state.model->stage().num_chunks();
  int64_t passes = parallel::largest_of(batch_ranks, static_cast<int64_t>(whole.size()));
  // Samples that share passes, and batches without targets, may leave fewer than were asked for.
  if (chunks > 1) passes = std::max(passes, stages);
  const PassSums sums =
      Passes(*state.model, objective, *state.gradients, *state.links, state.observer)
          .run(arch::schedule_of(config.order, mesh.stage(), stages, chunks, passes), own.batches(),
               columns,
               {.dropout_seed = mix64(config.seed, static_cast<uint64_t>(state.step)),
                .noise_alpha = config.noise_alpha,
                .drops = config.objective.drops,
                .scale = result.loss_scale / counts.weight,
                .routers = config.routers,
                .prediction = config.prediction,
                .weight_of_target = counts.targets > 0 ? counts.weight / counts.targets : 0});
  result.pixels_wait_s = sums.pixels_wait_s;
  take_figures(state, sums, counts.weight, result);

  state.gradients->finish();
  result.grad_norm = state.gradients->norm(1.0 / result.loss_scale);
  result.skipped = !std::isfinite(result.grad_norm) || !std::isfinite(result.loss);
  result.repeats = is_to_repeat(state, result, config);
  if (result.repeats) return result;
  update(state, config, sums, result);
  ++state.step;
  state.tokens_seen += result.num_tokens;
  return result;
}

}  // namespace danlu::train
