#include "settings/options/from_options.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/option_text.h"
#include "settings/options/adapter_options.h"
#include "settings/options/batch_options.h"
#include "settings/options/data_options.h"
#include "settings/options/deepspeed.h"
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
#include "settings/options/vision_options.h"
#include "settings/options/with_model.h"

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

/// Everything that the options say without the rules between them. `model` becomes the model that
/// they name.
TrainConfig read_parts(const std::string& verb, const Options& options, const RankPlace& place,
                       bool is_planned, arch::ModelConfig& model) {
  TrainConfig config;
  config.given_as = given_names(options);
  config.verb = verb;
  config.is_planned = is_planned;
  config.profile = {options.profile().name, options.profile().by, options.from_profile().size()};
  config.task = task_from(verb, options);
  config.tuner = tuner_from(verb, config.task, options);
  config.precision = training_precision(options);
  config.recompute = recompute_from(options);
  config.activation_offload = activation_offload_from(options);
  config.device = options.get_string("device");
  config.seed = static_cast<uint64_t>(options.get_int("seed"));
  config.dry_run = options.get_bool("dry_run");
  config.checks_plan = options.get_bool("plan_check");
  config.objective = objective_from(verb, options);
  const auto score = score_from(options, config.objective);
  NamedModel named = is_planned ? model_to_plan(options, config.task, verb != kPlanVerb, score)
                                : model_to_train(options, config.task, score);
  config.model = std::move(named.source);
  model = std::move(named.config);
  if (verb != kPlanVerb)
    config.prediction = prediction_training_from(options, config.tuner == Tuner::kLora, model);
  if (!is_planned) {
    check_reference(options, config.objective, model);
    check_judges(config.objective);
  }
  const VisionTraining vision = vision_training_from(options, model);
  config.lora = lora_from(options, config.tuner, model, vision);
  config.nf4 = nf4_from(options, config.tuner, model);
  config.freeze = vision.freeze;
  const std::vector<std::string> named_patterns = options.get_list("freeze");
  config.freeze.insert(config.freeze.end(), named_patterns.begin(), named_patterns.end());
  config.data =
      data_from(options, {config.task, config.seed, longest_sample(verb, model), is_planned});
  config.batch = batch_from(options);
  const Processes processes = processes_from(options, place, is_planned);
  take(processes, config);
  config.pipeline.chunk_list = vision.layer_list;
  config.pipeline.block_list = vision.block_list;
  take(sharing_from(options, {processes, config.activation_offload.to, is_planned}), config);
  config.schedule = schedule_from(options, config.tuner);
  config.adamw = adamw_from(options);
  config.data.learnt = learnt_from(options);
  config.loss_scale = loss_scale_from(options);
  config.max_grad_norm = options.get_float("max_grad_norm");
  if (verb != kPlanVerb) config.routers = router_training_from(options, model);
  config.max_bad_steps = options.get_int("max_bad_steps");
  config.output =
      output_from(options, options.get_string_or("model_type", base_name(config.model.path)));
  take(recorded_settings(options, config), config);
  return config;
}

/// Reads the options of one process of a job, or, for a plan, those of the job that `place`
/// describes. `model` becomes the model that they name.
TrainConfig read_config(const std::string& verb, const Options& given, const RankPlace& place,
                        bool is_planned, arch::ModelConfig& model) {
  require_training(given);
  const Options options = with_multimodal(verb, given);
  TrainConfig config = read_parts(verb, options, place, is_planned, model);
  if (options.has_value("deepspeed"))
    config = with_deepspeed(options.get_string("deepspeed"), options, std::move(config));
  check_architecture_flags(options, model);
  report_loss_scale(config);
  report_idle_flags(options, config);
  config.batch = checked_batch(config);
  take(check_with_model(options, model, config), config);
  return config;
}

}  // namespace

TrainConfig config_from_options(const std::string& verb, const Options& options) {
  const RankPlace place = rank_place_from_environment();
  explain_processes(options, place);
  arch::ModelConfig model;
  return read_config(verb, options, place, /*is_planned=*/false, model);
}

PlannedTraining planned_training(const std::string& verb, const Options& options, int64_t ranks,
                                 int64_t of_machine) {
  RankPlace place;
  place.size = ranks;
  place.local_size = std::min(ranks, of_machine);
  PlannedTraining planned;
  planned.config = read_config(verb, options, place, /*is_planned=*/true, planned.model);
  return planned;
}

}  // namespace danlu::settings
