#include "settings/options/from_options.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/option_text.h"
#include "settings/embedding_files.h"
#include "settings/options/adapter_options.h"
#include "settings/options/batch_options.h"
#include "settings/options/change_options.h"
#include "settings/options/data_options.h"
#include "settings/options/deepspeed.h"
#include "settings/options/embedding_options.h"
#include "settings/options/freeze_options.h"
#include "settings/options/idle_flags.h"
#include "settings/options/loss_scale.h"
#include "settings/options/megatron_flags.h"
#include "settings/options/model_options.h"
#include "settings/options/objective_options.h"
#include "settings/options/optimizer_options.h"
#include "settings/options/output_options.h"
#include "settings/options/precision.h"
#include "settings/options/prediction_options.h"
#include "settings/options/processes.h"
#include "settings/options/recompute.h"
#include "settings/options/recorded_settings.h"
#include "settings/options/router_options.h"
#include "settings/options/schedule_options.h"
#include "settings/options/sharding.h"
#include "settings/options/task_options.h"
#include "settings/options/teacher.h"
#include "settings/options/vision_options.h"
#include "settings/options/with_model.h"
#include "settings/ranking_tokens.h"
#include "settings/run_plan.h"
#include "text/template_choice.h"
#include "text/template_record.h"
#include "weights/lora/peft.h"

namespace danlu::settings {
namespace {

/// How the user named each option that was set, by other means than a profile.
std::map<std::string, std::string> given_names(const Options& options) {
  std::map<std::string, std::string> out;
  const Json all = options.to_json();
  for (const auto& [name, value] : all.items()) {
    if (options.is_set(name) && options.source(name) != OptionSource::kProfile)
      out[name] = options.given_as(name);
  }
  return out;
}

std::string base_name(const fs::path& directory) {
  const fs::path clean = fs::absolute(directory).lexically_normal();
  return clean.has_filename() ? clean.filename().string() : clean.parent_path().filename().string();
}

/// Errors: UsageError for --do_train false.
void require_training(const Options& options) {
  if (options.get_bool_or("do_train", true)) return;
  throw UsageError(
      tr("[train] {}: this command trains", option_text::given_switch(options, "do_train")),
      tr("danlu infer answers data sets with a model"));
}

void take(Processes processes, TrainConfig& config) {
  config.place = std::move(processes.place);
  config.mesh = processes.mesh;
  config.batch.ranks = processes.data_ranks_of_job;
  config.pipeline = std::move(processes.pipeline);
  config.order = processes.order;
  config.shares_cache = processes.shares_cache;
  config.dist_timeout_s = processes.dist_timeout_s;
}

void take(SharingOptions sharing, TrainConfig& config) {
  config.keeping = std::move(sharing.keeping);
  config.mesh.sharers = sharing.sharers;
  config.wants_state_in_host = sharing.wants_state_in_host;
  config.wants_parameters_in_host = sharing.wants_parameters_in_host;
  if (!sharing.activations_in.empty())
    config.activation_offload.directory = std::move(sharing.activations_in);
}

void take(RecordedSettings recorded, TrainConfig& config) {
  config.args = std::move(recorded.args);
  config.settings = std::move(recorded.settings);
  config.of_machine = std::move(recorded.of_machine);
  config.of_start = std::move(recorded.of_start);
}

void take(const PipelineWithModel& pipeline, TrainConfig& config) {
  config.chunks = pipeline.chunks;
  config.mesh.ring = pipeline.ring;
  config.order = pipeline.order;
}

/// Checks the batch of the whole job, then that of the ranks which are left of it.
BatchConfig checked_batch(const TrainConfig& config) {
  config.validate();
  if (config.batch.ranks == config.mesh.data) return config.batch;
  TrainConfig left = config;
  left.batch = batch_of_fewer(config.batch, config.mesh.data);
  left.validate();
  return left.batch;
}

/// LLaMA-Factory's steps of PPO are rollouts. Danlu's are updates, of which a rollout has several.
void count_rollouts(TrainConfig& config) {
  const int64_t updates = config.objective.policy.steps * config.objective.policy.iterations;
  if (updates == 1) return;
  if (config.batch.max_steps > 0) config.batch.max_steps *= updates;
  if (config.schedule.warmup_steps) *config.schedule.warmup_steps *= updates;
  config.output.save_steps *= updates;
  config.output.eval_steps *= updates;
  config.output.logging_steps *= updates;
  say_always(tr(
      "ppo in LLaMA-Factory's lines: {}, {}, {} and {} count rollouts, as there, and steps below "
      "are updates, {} to a rollout",
      config.flag("max_steps"), config.flag("save_steps"), config.flag("logging_steps"),
      config.flag("warmup_steps"), updates));
}

/// What a command asks for.
struct Command {
  const std::string& verb;
  const Options& options;
  RankPlace place;  ///< of one process of a job, or of the whole job that a plan is made for
  bool is_planned;
  bool is_training_line() const { return verb != kPlanVerb; }
};
/// What was read of it so far.
struct Read {
  TrainConfig config;
  arch::ModelConfig model;
};

/// The task, the objective, the tuner and where the run computes.
TrainConfig named_task(const Command& command) {
  const Options& options = command.options;
  TrainConfig config;
  config.given_as = given_names(options);
  config.verb = command.verb;
  config.is_planned = command.is_planned;
  config.profile = {options.profile().name, options.profile().by, options.from_profile().size()};
  config.task = task_from(command.verb, options);
  config.tuner = tuner_from(command.verb, config.task, options);
  config.objective = objective_from(command.verb, options);
  config.objective.averages_micro_batches =
      averages_micro_batches(options, config.task, config.objective);
  config.device = options.get_string("device");
  config.seed = static_cast<uint64_t>(options.get_int("seed"));
  config.dry_run = options.get_bool("dry_run") || options.has_value("write_samples");
  config.checks_plan = options.get_bool("plan_check");
  return config;
}

Read with_model(const Command& command, TrainConfig config) {
  const Options& options = command.options;
  const auto score = score_from(options, config.objective);
  NamedModel named = command.is_planned
                         ? model_to_plan(options, config.task, command.is_training_line(), score)
                         : model_to_train(options, config.task, score);
  config.model = std::move(named.source);
  if (config.objective.kind == ObjectiveKind::kClasses) {
    config.objective.classes = {*named.config.score->problem, named.config.score->labels};
    config.model.score->problem = named.config.score->problem;
  }
  if (!command.is_planned) {
    check_reference(options, config.objective, named.config);
    check_judges(config);
  }
  return {std::move(config), std::move(named.config)};
}

/// Qwen3-Reranker's files have a template of talks alone. What names another one is followed.
void take_ranking_template(TrainConfig& config) {
  const fs::path record = text::directory_of_record(config.model.companions, config.model.adapter);
  const bool is_named = config.data.template_name != "auto" ||
                        text::recorded_template(text::read_record(record), record).is_named();
  if (config.objective.ranking.by_tokens && !is_named && config.data.uses_template &&
      is_called_qwen3_reranker(config.model.path))
    config.data.template_name = "qwen3_reranker";
}

/// New adapters say what they are trained with.
void leave_dropout(const Options& options, TrainConfig& config) {
  if (config.objective.drops || config.lora.dropout == 0) return;
  if (config.tuner == Tuner::kLora && options.is_given("lora_dropout")) {
    log::notice("{}: {} has no dropout; {} false keeps it", options.given_as("lora_dropout"),
                config.objective.name, options.given_as("disable_dropout"));
  }
  config.lora.dropout = 0;
}

/// Two rows of the head make a score, which adapters on it would not be a part of.
void refuse_adapters_on_ranking_head(const Options& options, const TrainConfig& config) {
  const bool by_tokens =
      config.objective.kind == ObjectiveKind::kRanking && config.objective.ranking.by_tokens;
  if (!by_tokens || config.tuner != Tuner::kLora) return;
  if (!weights::peft_targets(config.lora, "lm_head", /*is_linear=*/true, /*is_head=*/true)) return;
  throw UsageError(tr("[train] {}: adapters on lm_head do not go with --task_type "
                      "generative_reranker, which reads two of its rows",
                      options.given_as("lora_target")),
                   tr("leave lm_head out; --modules_to_save lm_head trains all of it"));
}

/// Which of the model's parts are trained and how: adapters, frozen parts, routers, prediction
/// layers. Where a layer list of the tower cuts the pipeline, that too.
TrainConfig with_trained_parts(const Command& command, Read read) {
  const Options& options = command.options;
  TrainConfig& config = read.config;
  const VisionTraining vision = vision_training_from(options, read.model);
  if (command.is_training_line()) {
    config.prediction = prediction_training_from(options, config.tuner == Tuner::kLora, read.model);
    config.routers = router_training_from(options, read.model);
  }
  config.lora = lora_from(options, config.tuner, read.model, vision);
  save_new_rows(read.model, config);
  leave_dropout(options, config);
  refuse_adapters_on_ranking_head(options, config);
  config.nf4 = nf4_from(options, config.tuner, read.model);
  config.freeze = vision.freeze;
  const std::vector<std::string> named_patterns =
      freeze_patterns(options, config.tuner, read.model);
  config.freeze.insert(config.freeze.end(), named_patterns.begin(), named_patterns.end());
  if (config.objective.kind == ObjectiveKind::kEmbedding)
    fit_embedding(options, read.model, config);
  put_end_stages(options, read.model.num_layers, config.pipeline);
  config.pipeline.chunk_list = vision.layer_list;
  config.pipeline.block_list = vision.block_list;
  return std::move(config);
}

/// The directory that says how texts were written: the adapter's, which goes on as it began, else
/// the base's.
fs::path read_as(const TrainConfig& config) {
  const ObjectiveKind kind = config.objective.kind;
  const fs::path& base = config.model.companions;
  if (kind != ObjectiveKind::kEmbedding && kind != ObjectiveKind::kRanking) return base;
  const fs::path record = text::directory_of_record(base, config.model.adapter);
  return kind == ObjectiveKind::kRanking || embedded_by_template(record) ? record : base;
}

/// Plain texts have no place for a message that rows do not bring.
void refuse_lost_system_message(const Options& options, const TrainConfig& config) {
  const bool has_none = config.task == Task::kPretrain;  // said among the flags without effect
  if (config.data.uses_template || config.data.system.empty() || has_none) return;
  throw UsageError(tr("[train] {}: texts are read without a template, which would write it",
                      options.given_as("system")),
                   tr("write it into the rows' texts, or give --use_chat_template true"));
}

/// Encoders make vectors and numbers of texts. Errors: UsageError for what needs answers, or a
/// template.
void require_encoders_task(const Options& options, const arch::ModelConfig& model,
                           const TrainConfig& config) {
  const ObjectiveKind kind = config.objective.kind;
  const bool is_for_it = kind == ObjectiveKind::kEmbedding || kind == ObjectiveKind::kClasses ||
                         kind == ObjectiveKind::kReward ||
                         (kind == ObjectiveKind::kRanking && !config.objective.ranking.by_tokens);
  if (config.task == Task::kPretrain || !is_for_it) {
    throw UsageError(tr("[train] {}: an encoder is trained to give vectors of texts, labels or "
                        "scores, and no answers",
                        model.family),
                     tr("danlu sft --task_type embedding, seq_cls or reranker"));
  }
  const bool asks = options.is_set("use_chat_template") && options.get_bool("use_chat_template");
  const bool names =
      options.is_given("template") && options.get_string("template") != text::kPlainTexts;
  if (!asks && !names) return;
  throw UsageError(tr("[train] {} beside an encoder, which reads texts by its tokenizer's template",
                      options.given_as(asks ? "use_chat_template" : "template")),
                   tr("leave it out"));
}

TrainConfig with_data(const Command& command, const arch::ModelConfig& model, TrainConfig config) {
  const ObjectiveKind kind = config.objective.kind;
  config.data = data_from(command.options, {.task = config.task,
                                            .kind = kind,
                                            .seed = config.seed,
                                            .window = longest_sample(command.verb, model),
                                            .is_planned = command.is_planned,
                                            .is_rewarded = kind == ObjectiveKind::kPolicy,
                                            .may_be_packed = kind != ObjectiveKind::kPolicy &&
                                                             kind != ObjectiveKind::kDistillation &&
                                                             kind != ObjectiveKind::kEmbedding});
  config.data.learnt = learnt_of(command.options, config.objective);
  config.data.learns_all_rounds =
      learns_all_rounds(command.options, config.objective, config.data.learnt);
  if (model.encoder) require_encoders_task(command.options, model, config);
  config.data.uses_template =
      !model.encoder && !takes_texts_apart(command.options) &&
      uses_template(command.options, config.task, config.objective, read_as(config));
  if (kind == ObjectiveKind::kEmbedding && config.data.template_name == text::kPlainTexts)
    config.data.template_name = "auto";
  refuse_lost_system_message(command.options, config);
  if (config.objective.kind == ObjectiveKind::kRanking) take_ranking_template(config);
  config.batch = batch_from(command.options);
  return config;
}

/// Processes, what they share, and what is held where or computed again.
TrainConfig with_mesh(const Command& command, TrainConfig config) {
  const Options& options = command.options;
  config.recompute = recompute_from(options);
  config.activation_offload = activation_offload_from(options);
  const Processes processes = processes_from(options, command.place, command.is_planned);
  take(processes, config);
  take(sharing_from(options, {processes, config.activation_offload.to, command.is_planned}),
       config);
  return config;
}

TrainConfig with_optimizer(const Options& options, TrainConfig config) {
  config.precision = training_precision(options);
  config.schedule = schedule_from(options, config.tuner);
  config.adamw = adamw_from(options);
  // All but layers.
  if (config.adamw.turns && config.adamw.turns->is_badam && config.tuner == Tuner::kFull)
    config.freeze.insert(config.freeze.begin(), {".", "!(^|\\.)(layers|h)\\.[0-9]+\\."});
  config.loss_scale = loss_scale_from(options);
  config.max_grad_norm = options.get_float("max_grad_norm");
  config.noise_alpha = options.get_float("neftune_noise_alpha");
  config.max_bad_steps = options.get_int("max_bad_steps");
  return config;
}

TrainConfig with_output(const Options& options, TrainConfig config) {
  const Json& described = config.model.described;
  const std::string name = described.is_null() ? base_name(config.model.path)
                                               : described.at("model_type").get<std::string>();
  config.output = output_from(options, options.get_string_or("model_type", name));
  take(recorded_settings(options, config), config);
  return config;
}

/// Everything that the options say without the rules between them.
Read read_parts(const Command& command) {
  Read read = with_model(command, named_task(command));
  TrainConfig config = with_mesh(command, with_data(command, read.model, read.config));
  config = with_trained_parts(command, {std::move(config), read.model});
  config = with_output(command.options, with_optimizer(command.options, std::move(config)));
  return {std::move(config), std::move(read.model)};
}

Read read_config(const std::string& verb, const Options& given, const RankPlace& place,
                 bool is_planned) {
  require_training(given);
  const Options options = with_multimodal(verb, given);
  auto [config, model] = read_parts({verb, options, place, is_planned});
  if (options.has_value("deepspeed"))
    config = with_deepspeed(options.get_string("deepspeed"), options, std::move(config));
  // The rate of a DeepSpeed file is the run's.
  config.adamw.groups.rules = group_rules_of(options, config.schedule.shape.lr, config.freeze);
  check_architecture_flags(options, model);
  if (!config.model.described.is_null() && config.tuner == Tuner::kLora) {
    throw UsageError(
        tr("[train] LoRA needs a model that exists; this one is described by flags and begins at "
           "random"),
        tr("leave --tuner lora out, or name the model they are for: --model DIR"));
  }
  report_loss_scale(config);
  report_idle_flags(options, config);
  const BatchConfig checked = checked_batch(config);
  // The batch of the whole job counts: where ranks are missing, the others draw as many answers.
  config.objective.policy.steps = steps_of_rollout(config);
  config.batch = checked;
  if (config.profile.name == "llamafactory" && config.objective.policy.has_critic())
    count_rollouts(config);
  take(check_with_model(options, model, config), config);
  if (!is_planned) check_teacher(config, model);
  return {std::move(config), std::move(model)};
}

}  // namespace

TrainConfig config_from_options(const std::string& verb, const Options& options) {
  const RankPlace place = rank_place_from_environment();
  explain_processes(options, place);
  return read_config(verb, options, place, /*is_planned=*/false).config;
}

PlannedTraining planned_training(const std::string& verb, const Options& options, int64_t ranks,
                                 int64_t of_machine) {
  RankPlace place;
  place.size = ranks;
  place.local_size = std::min(ranks, of_machine);
  auto [config, model] = read_config(verb, options, place, /*is_planned=*/true);
  return {std::move(config), std::move(model)};
}

}  // namespace danlu::settings
