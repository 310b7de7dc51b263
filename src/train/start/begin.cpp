#include "train/start/begin.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "models/adapters.h"
#include "models/training_memory.h"
#include "models/weight_files.h"
#include "parallel/agree.h"
#include "train/objectives/make_objective.h"
#include "train/precision.h"
#include "train/report/banner.h"
#include "train/start/precompute.h"
#include "weights/lora/peft.h"
#include "weights/lora/trained_base.h"

namespace danlu::train {
namespace {

/// What of the base of adapters is held in NF4.
models::Quantisation quantisation_of(const TrainConfig& config) {
  models::Quantisation quantisation;
  quantisation.keeps_nf4 = config.nf4.has_value();
  if (config.nf4 && !config.nf4->is_in_files)
    quantisation.make_nf4 = models::Quantisation::Nf4{config.nf4->doubly};
  return quantisation;
}

/// The model without adapters that are to be made or loaded.
std::unique_ptr<models::CausalLM> load_or_initialise(const Prepared& run) {
  const TrainConfig& config = run.config;
  const std::optional<checkpoint::Loaded>& checkpoint = run.earlier.checkpoint;
  const parallel::Mesh& mesh = run.ranks.mesh();
  const at::ScalarType dtype = scalar_type_of(config.precision);
  const bool lora = config.tuner == Tuner::kLora;
  const auto freeze = [&](models::CausalLM& model) {
    if (lora) model.freeze({"."});  // as adapters will
    if (!config.freeze.empty()) model.freeze(config.freeze);
  };
  const auto settle = [&](models::CausalLM& model) {
    models::keep(model, config.keeping, /*holds_values=*/false);
  };
  const models::Quantisation quantisation = quantisation_of(config);
  const arch::Stage stage =
      arch::stages_of(run.source.config, config.pipeline)[static_cast<size_t>(mesh.stage())];
  if (config.model.from_scratch && !checkpoint) {
    auto model =
        std::make_unique<models::CausalLM>(run.source.config, stage, mesh, dtype, run.device);
    freeze(*model);
    models::hold_in_nf4(*model, quantisation);
    settle(*model);
    models::initialize(*model, config.seed);
    return model;
  }
  if (checkpoint && !lora) {
    // A full checkpoint holds the model; adapters go on top of the base.
    weights::CheckpointSource source = weights::open_checkpoint_source(
        checkpoint->directory,
        {.all_tensors = true, .scores = run.source.config.score.has_value()});
    source.config.predicts_ahead = run.source.config.predicts_ahead;
    return models::load_model(source, mesh, dtype, run.device, settle, stage, {}, freeze);
  }
  return models::load_model(run.source, mesh, dtype, run.device, settle, stage, quantisation,
                            freeze);
}

/// Where adapters that are trained further were on another base, or on other numbers of it.
void report_base(const Prepared& run, const fs::path& adapter) {
  weights::report_other_base(adapter, run.config.model.path);
  const auto made = weights::recorded_nf4(adapter);
  if (run.config.nf4 || run.config.model.as_trained || !run.source.model ||
      !weights::is_other_base(made, *run.source.model))
    return;
  log::info("notice: {}", tr("{}: these adapters were trained on their base in NF4, and are "
                             "trained further on what its "
                             "files have; --quantization_bit 4 holds it as it was",
                             adapter.string()));
}

void add_adapters(const Prepared& run, models::CausalLM& model) {
  const TrainConfig& config = run.config;
  const std::optional<checkpoint::Loaded>& checkpoint = run.earlier.checkpoint;
  const bool lora = config.tuner == Tuner::kLora;
  if (model.lora() && (!lora || checkpoint || !config.model.adapter.empty())) {
    throw ModelError(
        tr("[train] {}: a model with LoRA adapters on it", config.model.path.string()),
        tr("train them further with --tuner lora, or convert --to hf merges them first"));
  }
  if (!lora || model.lora()) return;
  const fs::path adapter = checkpoint ? checkpoint->directory : config.model.adapter;
  if (adapter.empty()) {
    models::add_lora(model, config.lora, config.seed);
  } else {
    if (!checkpoint) report_base(run, adapter);
    models::load_adapter(model, adapter, config.model.adapter_alpha);
    if (checkpoint && config.lora.start.takes_from_base()) models::fix_half_of_adapters(model);
  }
}

/// Where the head is that no file had, which this run begins with.
void say_new_head(const Prepared& run) {
  const std::optional<arch::ScoreHead>& head = run.source.config.score;
  const bool has_one = run.earlier.checkpoint || !run.config.model.adapter.empty();
  if (!head || !head->seed || has_one) return;
  if (head->problem) {
    log::info("a new head: {} is drawn for {} labels ({}) with deviation {} (seed {})",
              head->module(), head->labels, arch::label_problem_name(*head->problem),
              run.source.config.initializer_range, *head->seed);
    return;
  }
  log::info("a new reward head: {} is drawn with deviation {} (seed {}){}", head->module(),
            run.source.config.initializer_range, *head->seed,
            head->has_bias() ? tr(", its bias 0") : "");
}

std::unique_ptr<models::CausalLM> make_model(const Prepared& run) {
  std::unique_ptr<models::CausalLM> model = load_or_initialise(run);
  add_adapters(run, *model);
  say_new_head(run);
  model->memory().set_recompute(run.config.recompute);
  model->memory().set_activation_offload(run.config.activation_offload);
  return model;
}

/// Systems differ in it, and all numbers of a run depend on it.
void say_reference_of_adapters(const TrainConfig& config) {
  const fs::path& adapter = config.model.adapter;
  const settings::ObjectiveConfig& objective = config.objective;
  if (adapter.empty() || config.tuner != Tuner::kLora || !objective.has_reference() ||
      !objective.reference.empty() || objective.kind == settings::ObjectiveKind::kDistillation)
    return;
  if (objective.base_is_reference) {
    log::info(
        "reference: the model without the adapters {}, as in lines of {}; --ref_adapters {} takes "
        "them in",
        adapter.string(), config.profile.name, adapter.string());
  } else {
    log::info(
        "reference: the model with the adapters {} as they are; --ref_model {} measures from the "
        "model without them",
        adapter.string(), config.model.path.string());
  }
}

/// The weights that a run without adapters began with, or those that --ref_model or --teacher_model
/// names; nullptr where the model without its adapters is the reference. Collective.
std::shared_ptr<const FrozenModel> make_reference(const Prepared& run) {
  const TrainConfig& config = run.config;
  const fs::path& named = config.objective.reference;
  say_reference_of_adapters(config);
  if (!config.holds_reference() || finds_precomputed(run)) return nullptr;
  if (!named.empty()) {
    settings::ModelSource other;
    other.path = named;
    return load_frozen(run, settings::open_model(other));
  }
  // Adapters that are trained further are part of what the model was before.
  return config.tuner == Tuner::kLora
             ? load_frozen(run, run.source, config.model.adapter, config.model.adapter_alpha,
                           quantisation_of(config))
             : load_frozen(run, run.source);
}

TrainState make_state(const TrainConfig& config, std::unique_ptr<models::CausalLM> model) {
  TrainState state;
  state.model = std::move(model);
  const auto trained = static_cast<int64_t>(state.model->trainable_parameters().size());
  if (parallel::sum_of(state.model->mesh().pipeline(), trained) == 0)
    throw UsageError(tr("[train] every parameter is frozen: nothing to train"));
  parallel::ParameterStore& store = models::keep(*state.model, config.keeping);
  state.gradients = std::make_unique<optim::GradBuffer>(store);
  settings::AdamWConfig adamw = config.adamw;
  if (adamw.mini) adamw.mini->head_size = state.model->config().head_dim;
  state.optimizer = std::make_unique<optim::AdamW>(store, adamw, state.model->config().num_layers);
  state.links = std::make_unique<StageLinks>(*state.model);
  if (config.precision == Precision::kF16) state.loss_scaler = optim::LossScaler(config.loss_scale);
  return state;
}

/// Errors: UsageError where evaluations will not have the figure that says which weights are best.
/// Rewards have names of their own, which an evaluation tells.
void require_best_metric(const Prepared& run, const Objective& objective) {
  const std::string& name = run.config.output.best_metric;
  if (name.empty() || run.config.objective.is_rewarded()) return;
  std::vector<std::string> known = objective.metrics();
  if (!objective.found().empty())
    known.insert(known.end(), {"pearson_" + objective.found(), "spearman_" + objective.found()});
  if (std::count(known.begin(), known.end(), name) > 0) return;
  known.insert(known.begin(), "loss");
  throw UsageError(tr("[train] {} {}: evaluations have no such figure; there is: {}",
                      run.config.flag("metric_for_best_model"), name, fmt::join(known, ", ")));
}

/// Returns the number of samples that the interrupted run had consumed.
int64_t restore(const checkpoint::Loaded& from, RunProgress& progress, TrainState& state) {
  checkpoint::load_optimizer(from, *state.optimizer);
  restore_progress(from.trainer_state, progress, state);
  log::info("resuming from {} at step {}", from.directory.string(), state.step);
  const auto consumed = json_get<int64_t>(from.data_state, "consumed_samples");
  if (!consumed) {
    throw IoError(tr("{}: data_state.json lacks consumed_samples", from.directory.string()));
  }
  return *consumed;
}

}  // namespace

std::shared_ptr<const FrozenModel> load_frozen(const Prepared& run,
                                               const weights::CheckpointSource& source,
                                               const fs::path& adapter,
                                               std::optional<double> adapter_alpha,
                                               const models::Quantisation& quantisation) {
  const TrainConfig& config = run.config;
  const parallel::Mesh& mesh = run.ranks.mesh();
  const arch::PipelineLayers split =
      arch::split_beside(config.pipeline, run.source.config.num_layers, source.config.num_layers);
  const arch::Stage stage =
      arch::stages_of(source.config, split)[static_cast<size_t>(mesh.stage())];
  const at::ScalarType dtype = scalar_type_of(config.precision);
  const auto freeze = [](models::CausalLM& model) { model.freeze({"."}); };
  const auto settle = [&](models::CausalLM& model) {
    models::keep(model, config.keeping, /*holds_values=*/false);
  };
  std::unique_ptr<models::CausalLM> model;
  if (!source.model) {  // the run's own, which began from its seed
    model = std::make_unique<models::CausalLM>(source.config, stage, mesh, dtype, run.device);
    freeze(*model);
    models::hold_in_nf4(*model, quantisation);
    settle(*model);
    models::initialize(*model, config.seed);
  } else {
    model =
        models::load_model(source, mesh, dtype, run.device, settle, stage, quantisation, freeze);
  }
  if (!adapter.empty()) models::load_adapter(*model, adapter, adapter_alpha);
  models::keep(*model, config.keeping);
  return std::make_shared<FrozenModel>(std::move(model));
}

Begun begin_training(const Prepared& run) {
  Begun begun{make_state(run.config, make_model(run)), {}, 0};
  begun.progress.best_metric = run.config.output.best_metric;
  begun.progress.best_is_greatest = run.config.output.best_is_greatest;
  if (run.objective) {
    begun.state.objective = run.objective;
  } else {
    begun.reference = make_reference(run);
    begun.state.objective =
        make_objective(run.config.objective, begun.reference, run.text.tokenizer.get());
  }
  require_best_metric(run, *begun.state.objective);
  if (run.earlier.checkpoint) {
    const checkpoint::Loaded& from = *run.earlier.checkpoint;
    begun.consumed_samples = restore(from, begun.progress, begun.state);
    begun.evaluation_is_due = from.trainer_state.value("evaluation_is_due", false);
    begun.stream_state = from.data_state.value("stream", Json());
  } else if (run.origin.continued) {
    begun.consumed_samples =
        restore_continued(*run.origin.continued, run.steps.plan, run.config, begun.state);
    // What several rollouts draw is in Danlu's own checkpoints alone.
    if (begun.consumed_samples > 0 && run.config.objective.policy.parts > 1) {
      throw UsageError(tr("[train] {}: a checkpoint in Megatron's format does not hold the answers "
                          "that were left "
                          "unfinished",
                          run.config.flag("partial_rollout_max_split")),
                       tr("go on from the run's own checkpoint, or leave it out"));
    }
  }
  if (!run.earlier.is_own) begun.progress.forget_best();
  log::info("{}", parameter_line(*begun.state.model));
  if (run.config.nf4) {
    const models::HeldBytes held = models::held_bytes(*begun.state.model);
    log::info("base weights: {:.1f} MB on this rank, {:.1f} MB of them in NF4",
              static_cast<double>(held.all) / 1e6, static_cast<double>(held.in_blocks) / 1e6);
  }
  return begun;
}

}  // namespace danlu::train
