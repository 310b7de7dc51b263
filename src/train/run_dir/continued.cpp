#include "train/run_dir/continued.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "weights/convert/training_state.h"

namespace danlu::train {
namespace {

/// A warning where the checkpoint's schedule is another than the run's, which is followed:
/// Megatron's --override-opt_param-scheduler.
void warn_of_other_schedule(const fs::path& checkpoint, const Json& saved, const Json& now) {
  std::string changes;
  for (const char* key : {"max_lr", "min_lr", "lr_warmup_steps", "lr_decay_style", "lr_decay_steps",
                          "start_wd", "end_wd"}) {
    if (!saved.is_object() || !saved.contains(key) || saved.at(key) == now.at(key)) continue;
    changes += changes.empty() ? "" : "; ";
    changes += tr("{}: {} then, {} now", key, saved.at(key).dump(), now.at(key).dump());
  }
  if (changes.empty()) return;
  log::warning("{}: its schedule (in samples) is not this run's, which is followed: {}",
               checkpoint.string(), changes);
}

}  // namespace

std::optional<Continued> continued_from(const TrainConfig& config,
                                        const weights::CheckpointSource& source,
                                        const Json& identity, std::string& origin) {
  std::string why;
  const bool can_be = source.megatron || source.format == weights::Format::kNative;
  if (!can_be || config.model.from_scratch) return std::nullopt;
  if (!config.model.continues || config.output.resume == "none") {
    why = "a new run: iteration 0";
  } else if (!source.iteration) {
    why = "a release: iteration 0";
  } else if (!source.has_optimizer) {
    why = "weights only: iteration 0, consumed samples 0";
  } else if (config.tuner != Tuner::kFull || !config.freeze.empty()) {
    why = "its optimizer's state is of all weights: iteration 0";
  }
  if (!why.empty()) {
    origin += fmt::format("; {}", translated(why));
    return std::nullopt;
  }
  weights::CheckpointSource opened =
      weights::open_checkpoint_source(source.path, {.config_dir = source.companions,
                                                    .iteration = std::to_string(*source.iteration),
                                                    .with_optimizer = true});
  Continued continued{.step = opened.optimizer.settings.iteration,
                      .consumed_samples = opened.optimizer.settings.consumed_train_samples,
                      .optimizer = std::move(opened.optimizer),
                      .model = std::move(opened.model)};
  const weights::OptimizerSettings& settings = continued.optimizer.settings;
  warn_of_other_schedule(source.path, settings.scheduler,
                         weights::megatron_schedule(identity, continued.consumed_samples));
  origin += tr("; continued: iteration {}, consumed samples {}, Adam's state", continued.step,
               continued.consumed_samples);
  return continued;
}

int64_t restore_continued(const Continued& continued, const RunPlan& plan,
                          const TrainConfig& config, TrainState& state) {
  if (continued.step >= plan.total_steps) {
    throw UsageError(
        tr("[train] {}: the checkpoint is of iteration {}, and this run has {} steps",
           config.model.path.string(), continued.step, plan.total_steps),
        tr("raise --train-iters or --epochs to train on, or begin anew with --finetune"));
  }
  const auto read = [&](const std::string& name, const std::vector<int64_t>& shape,
                        const arch::Rect& rect, const at::Tensor& to) {
    const weights::TensorSource& tensors = *continued.optimizer.tensors;
    return checkpoint::read_rect(tensors.find(name) ? tensors : *continued.model, name, shape, rect,
                                 to);
  };
  int64_t updates = continued.step;
  for (const Json& group : continued.optimizer.settings.groups)
    updates = json_get<int64_t>(group, "step").value_or(updates);
  state.optimizer->load_state(read, updates);
  state.step = continued.step;
  return continued.consumed_samples;
}

}  // namespace danlu::train
