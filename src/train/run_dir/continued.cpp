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

/// What the checkpoint says of its optimizer and schedule, and this run says otherwise.
std::string other_settings(const weights::OptimizerSettings& saved, const Json& identity) {
  const Json now = weights::megatron_schedule(identity, saved.consumed_train_samples);
  std::string changes;
  const auto compare = [&](const char* key, const Json& then, const Json& today) {
    if (then.is_null() || then == today) return;
    changes += changes.empty() ? "" : "; ";
    changes += tr("{}: {} then, {} now", key, then.dump(), today.dump());
  };
  for (const char* key : {"max_lr", "min_lr", "lr_warmup_steps", "lr_decay_style", "lr_decay_steps",
                          "start_wd", "end_wd"})
    compare(key, json_get<Json>(saved.scheduler, key).value_or(nullptr), now.at(key));
  if (saved.groups.empty()) return changes;
  const Json& group = saved.groups.front();
  const Json betas = {identity.at("adam_beta1"), identity.at("adam_beta2")};
  compare("betas", json_get<Json>(group, "betas").value_or(nullptr), betas);
  compare("eps", json_get<Json>(group, "eps").value_or(nullptr), identity.at("adam_epsilon"));
  return changes;
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
  } else if (!config.adamw.is_plain()) {
    why = config.adamw.muon ? "its optimizer's state is Adam's, not Muon's: iteration 0"
                            : "its optimizer's state is Adam's, not this run's: iteration 0";
  } else if (config.model.changes.rows.vocab_size > 0) {
    why = "the vocabulary grows: iteration 0";
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
  const std::string changes = other_settings(continued.optimizer.settings, identity);
  if (!changes.empty()) {
    log::warning("{}: continued with this run's settings instead of its own (steps in samples): {}",
                 source.path.string(), changes);
  }
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
