#include "settings/options/from_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "arch/pipeline.h"
#include "arch/shard.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/nearest_name.h"
#include "base/option_text.h"
#include "data/tokenized_dataset.h"
#include "settings/options/adapter_flags.h"
#include "settings/options/deepspeed.h"
#include "settings/options/idle_flags.h"
#include "settings/options/loss_scale.h"
#include "settings/options/media_flags.h"
#include "settings/options/megatron_flags.h"
#include "settings/options/model_names.h"
#include "settings/options/model_options.h"
#include "settings/options/module_names.h"
#include "settings/options/processes.h"
#include "settings/options/recompute.h"
#include "settings/options/recorded_settings.h"
#include "settings/options/sharding.h"
#include "settings/run_plan.h"

namespace danlu::settings {
namespace {

Task task_from(const std::string& verb, const Options& options) {
  const std::string stage = options.get_string_or("stage", verb == "pretrain" ? "pretrain" : "sft");
  if (stage == "sft") return Task::kSft;
  if (stage == "pretrain" || stage == "pt") return Task::kPretrain;
  throw UsageError(
      tr("[train] {} {}: this version trains pretrain and sft", options.given_as("stage"), stage),
      tr("dpo, simpo, orm, prm and the others are not built in"));
}

Tuner tuner_from(const std::string& verb, Task task, const Options& options) {
  // MindSpeed-LLM's posttrain has no word for LoRA: targets ask for it there, and a rank does here.
  const bool lora =
      verb == "sft" || options.is_given("lora_rank") || options.is_given("lora_target");
  const std::string fallback = task == Task::kSft && lora ? "lora" : "full";
  const std::string name = options.get_string_or("tuner", fallback);
  if (name == "qlora" || options.get_int("quantization_bit") != 0) {
    const char* flag = name == "qlora" ? "tuner" : "quantization_bit";
    throw UsageError(
        tr("[train] {} {}: quantised base weights are not in this version", options.given_as(flag),
           name == "qlora" ? name : std::to_string(options.get_int(flag))),
        tr("use --tuner lora"));
  }
  return name == "full" ? Tuner::kFull : name == "lora" ? Tuner::kLora : Tuner::kFreeze;
}

Precision precision_named(const std::string& name) {
  if (name == "fp32" || name == "float32") return Precision::kF32;
  if (name == "fp16" || name == "float16") return Precision::kF16;
  return Precision::kBF16;
}

/// Targets by the names of this model; other systems' words for several layers are translated.
std::vector<std::string> lora_targets_from(const Options& options, const arch::ModelConfig& model) {
  std::vector<std::string> targets, translated_words;
  for (const std::string& target : options.get_list("lora_target")) {
    const bool all = target == "ALL" || target == "all" || target == "all_linear";
    const std::vector<std::string> layers = layers_called(target, model);
    if (layers.empty()) {
      targets.push_back(all ? "all-linear" : target);
      continue;
    }
    translated_words.push_back(fmt::format("{} ({})", target, fmt::join(layers, ", ")));
    targets.insert(targets.end(), layers.begin(), layers.end());
  }
  if (!translated_words.empty())
    log::info("{}: {}", options.given_as("lora_target"), fmt::join(translated_words, ", "));
  return targets;
}

weights::PeftConfig lora_from(const Options& options, const arch::ModelConfig& model) {
  weights::PeftConfig lora;
  lora.rank = options.get_int("lora_rank");
  lora.alpha = options.get_float("lora_alpha");
  lora.dropout = options.get_float("lora_dropout");
  lora.rslora = options.get_bool("use_rslora");
  lora.dora = options.get_bool("use_dora");
  weights::set_targets(lora, lora_targets_from(options, model));
  lora.modules_to_save = options.get_list("lora_modules_to_save");
  return lora;
}

/// Whether anything is to be evaluated: --eval_strategy no, HF's --do_eval false and Megatron's
/// --eval-iters 0 each say no.
bool evaluates(const Options& options) {
  if (options.has_value("eval_strategy")) return options.get_string("eval_strategy") != "no";
  if (!options.get_bool_or("do_eval", true)) return false;
  return !(options.is_set("eval_iters") && options.get_int("eval_iters") == 0);
}

/// A profile's split gives way to what the user said of held-out data in other words.
std::string split_from(const Options& options) {
  const bool own = options.is_given("split");
  const bool otherwise = options.is_given("val_dataset") || options.is_given("val_ratio");
  return own || !otherwise ? options.get_string_or("split", "") : "";
}

/// `looks`: for what the names mean on this machine.
DataConfig data_from(const Options& options, Task task, uint64_t seed, bool looks) {
  DataConfig data;
  data.cache_dir = options.has_value("cache_dir") ? fs::path(options.get_string("cache_dir"))
                                                  : data::default_cache_dir();
  data.train = options.get_list("dataset");
  data.validation = options.get_list("val_dataset");
  for (auto* list : {&data.train, &data.validation}) {
    for (std::string& item : *list) {
      if (looks) item = locate_dataset(item, data.cache_dir);
    }
  }
  data.validation_ratio =
      options.get_float_or("val_ratio", task == Task::kSft && evaluates(options) ? 0.01 : 0.0);
  data.megatron_split = split_from(options);
  data.max_length = options.get_int_or("max_length", 0);
  data.truncation = options.get_string("truncation");
  data.share_passes = options.get_bool("packing");
  data.pack_sequences = options.get_bool("pack_sequences");
  data.shuffle = options.get_bool("shuffle") && !options.get_bool("no_shuffle");
  data.seed = static_cast<uint64_t>(options.get_int_or("data_seed", static_cast<int64_t>(seed)));
  data.max_rows = options.get_int("max_samples");
  data.max_rows_of_all = options.get_int("max_total_samples");
  data.media = media_flags_from(options);
  data.strict = options.get_bool("strict");
  data.max_dropped_ratio = options.get_float("max_dropped_ratio");
  data.workers = options.get_int("workers");
  data.dataset_dir = options.get_string_or("dataset_dir", "");
  if (looks && !data.dataset_dir.empty() && !fs::is_directory(data.dataset_dir)) {
    throw UsageError(tr("[train] {} {}: no such directory", options.given_as("dataset_dir"),
                        data.dataset_dir.string()));
  }
  data.overwrite_cache = options.get_bool("overwrite_cache");
  data.append_eod = options.get_bool("append_eod");
  data.eod_mask_loss = options.get_bool("eod_mask_loss");
  data.reset_position_ids = options.get_bool("reset_position_ids");
  data.reset_attention_mask = options.get_bool("reset_attention_mask");
  data.handler_name = options.get_string_or("handler_name", "");
  if (options.has_value("columns")) data.columns = options.get_json("columns");
  if (options.has_value("map_keys")) data.map_keys = options.get_json("map_keys");
  data.json_keys = options.get_list("json_keys");
  data.template_name = options.get_string("template");
  data.templates_file = options.get_string_or("templates_file", "");
  data.system = options.get_string_or("system", "");
  return data;
}

/// Tokens that a sample may have at most. A plan without a command asks what other lengths take.
int64_t window_of(const std::string& verb, const arch::ModelConfig& model) {
  return model.max_positions > 0 && verb != kPlanVerb ? model.max_positions : INT64_MAX;
}

/// --max_length, or 2048 and never more than `window`.
int64_t max_length_from(const Options& options, int64_t window) {
  const bool chosen =
      options.has_value("max_length") && options.source("max_length") != OptionSource::kProfile;
  if (chosen) return options.get_int("max_length");
  return std::min(window, options.get_int_or("max_length", 2048));
}

BatchConfig batch_from(const Options& options) {
  BatchConfig batch;
  batch.micro_batch_size = options.get_int("batch_size");
  batch.eval_batch_size = options.get_int_or("eval_batch_size", 0);
  batch.accumulation = options.get_int_or("accum", 0);
  batch.global_batch_size = options.get_int_or("global_batch_size", 0);
  // One that nobody named, of a plan, gives way to an accumulation.
  if (batch.accumulation > 0 && !options.is_set("global_batch_size")) batch.global_batch_size = 0;
  // A global batch given by the user outweighs an accumulation that only a profile chose.
  if (batch.global_batch_size > 0 && options.source("accum") == OptionSource::kProfile)
    batch.accumulation = 0;
  batch.epochs = options.get_float("epochs");
  batch.max_steps = options.get_int("max_steps");
  batch.train_samples = options.get_int_or("train_samples", 0);
  return batch;
}

ScheduleChoice schedule_from(const Options& options, Tuner tuner) {
  ScheduleChoice schedule;
  schedule.shape.kind = schedule_from_name(options.get_string("lr_scheduler"));
  schedule.shape.lr = options.get_float_or("lr", tuner == Tuner::kLora ? 1e-4 : 1e-5);
  schedule.shape.min_lr = options.get_float("min_lr");
  if (schedule.shape.kind == ScheduleKind::kWarmupCosineLr && !options.is_given("min_lr"))
    schedule.shape.min_lr = kCosineMinRatio * schedule.shape.lr;
  schedule.shape.power = options.get_float("lr_power");
  schedule.shape.num_cycles = options.get_int("lr_num_cycles");
  schedule.shape.decay_ramp = ramp_from_name(options.get_string("wsd_decay_style"));
  // The Trainer's "constant" warms up only here, and only if told to: no profile's ratio is for it.
  const bool plain_constant = options.get_string("lr_scheduler") == "constant";
  schedule.warmup_ratio = plain_constant && !options.is_given("warmup_ratio")
                              ? 0.0
                              : options.get_float_or("warmup_ratio", 0.05);
  if (options.has_value("lr_warmup_fraction"))
    schedule.warmup_fraction = options.get_float("lr_warmup_fraction");
  // The Trainer's 0 is its default: the ratio holds.
  const std::string& system = options.profile().name;
  const bool of_the_trainer = system == "swift24" || system == "alpaca" || system == "llamafactory";
  if (options.has_value("warmup_steps") &&
      !(of_the_trainer && options.get_int("warmup_steps") == 0))
    schedule.warmup_steps = options.get_int("warmup_steps");
  if (options.has_value("lr_decay_iters"))
    schedule.decay_total_steps = options.get_int("lr_decay_iters");
  if (options.has_value("wsd_decay_steps"))
    schedule.wsd_decay_steps = options.get_int("wsd_decay_steps");
  return schedule;
}

bool is_group_rule(const Json& rule) {
  if (!rule.is_object() || !rule.contains("pattern")) return false;
  for (const auto& [key, value] : rule.items()) {
    const bool is_number = key == "lr_scale" || key == "weight_decay";
    if (is_number ? !value.is_number() : key != "pattern" || !value.is_string()) return false;
  }
  return true;
}

/// Errors: UsageError unless it is a list of such rules.
std::vector<GroupRule> group_rules_from(const Json& rules) {
  if (!rules.is_array() || !std::all_of(rules.begin(), rules.end(), is_group_rule)) {
    throw UsageError(
        tr("[train] --param_groups: a list of {{\"pattern\", \"lr_scale\", "
           "\"weight_decay\"}} is expected, got {}",
           rules.dump(-1, ' ', false, Json::error_handler_t::replace)),
        tr("as '[{{\"pattern\": \"embed\", \"lr_scale\": 0.1}}]': a pattern is a text, "
           "the others are numbers and may be left out"));
  }
  std::vector<GroupRule> result;
  for (const Json& rule : rules) {
    result.push_back({rule["pattern"].get<std::string>(), rule.value("lr_scale", 1.0),
                      rule.value("weight_decay", -1.0)});
  }
  return result;
}

AdamWConfig adamw_from(const Options& options) {
  AdamWConfig adamw;
  adamw.beta1 = options.get_float("adam_beta1");
  adamw.beta2 = options.get_float("adam_beta2");
  adamw.eps = options.get_float("adam_epsilon");
  adamw.groups.weight_decay = options.get_float("weight_decay");
  adamw.groups.decay_rule = decay_rule_from_name(options.get_string("weight_decay_on"));
  if (options.has_value("param_groups"))
    adamw.groups.rules = group_rules_from(options.get_json("param_groups"));
  return adamw;
}

Interval interval_from(const Options& options, const char* name) {
  const std::string text = options.get_string_or(name, "steps");
  return text == "no" ? Interval::kNo : text == "epoch" ? Interval::kEpoch : Interval::kSteps;
}

/// Errors: UsageError for trackers that are not built in, and for words that name none.
bool wants_tensorboard(const Options& options) {
  static const std::vector<std::string> kBuiltIn = {"tensorboard", "all", "none"};
  static const std::vector<std::string> kElsewhere = {
      "wandb",      "swanlab", "mlflow",  "comet_ml", "clearml", "neptune", "azure_ml",
      "codecarbon", "dagshub", "dvclive", "flyte",    "trackio", "mtrl"};
  bool wanted = true;
  for (const std::string& word : options.get_list("report_to")) {
    if (word == "none") wanted = false;
    if (std::count(kBuiltIn.begin(), kBuiltIn.end(), word)) continue;
    const std::string flag = options.given_as("report_to");
    if (std::count(kElsewhere.begin(), kElsewhere.end(), word)) {
      throw UsageError(
          tr("[train] {} {}: not available; there are tensorboard and none", flag, word),
          tr("logging.jsonl and TensorBoard files hold every figure; nothing is sent anywhere"));
    }
    std::string hint;
    std::vector<std::string> known = kBuiltIn;
    if (const auto near = nearest_name(word, known)) hint = tr("did you mean '{}'?", *near);
    throw UsageError(tr("[train] {}: expected tensorboard or none, got '{}'", flag, word), hint);
  }
  return wanted;
}

OutputConfig output_from(const Options& options, const std::string& model_name) {
  OutputConfig output;
  output.save = interval_from(options, "save_strategy");
  output.evaluate = evaluates(options) ? interval_from(options, "eval_strategy") : Interval::kNo;
  output.save_steps = options.get_int_or("save_steps", output.save_steps);
  output.eval_steps = options.get_int_or("eval_steps", 0);
  output.save_total_limit = std::max<int64_t>(0, options.get_int("save_total_limit"));
  output.save_only_model = options.get_bool("save_only_model");
  const bool in_megatrons = options.get_string("save_format") == "mcore";
  output.save_format = in_megatrons ? SaveFormat::kMegatron : SaveFormat::kHf;
  output.distributed_optimizer = sharding_from(options) != Sharding::kNone;
  output.vocab_divisor = options.get_int_or("make_vocab_size_divisible_by", 1);
  output.adapters_alone = options.get_bool_or("lora_ckpt_filter", false);
  output.overlap_grad_reduce = options.get_bool_or("overlap_grad_reduce", false);
  output.transformer_engine =
      options.get_string_or("transformer_impl", "local") == "transformer_engine";
  output.load_best_at_end = options.get_bool("load_best_model_at_end");
  output.eval_batches = options.get_int_or("eval_iters", 0);
  output.logging_steps = options.get_int("logging_steps");
  output.log_first_step = options.get_bool("logging_first_step");
  output.hf_log_format = options.get_string("log_format") == "hf";
  output.tensorboard = wants_tensorboard(options);
  output.run_name = options.get_string_or("run_name", "");
  std::replace(output.run_name.begin(), output.run_name.end(), '/', '_');  // one folder
  output.plot_loss = options.get_bool("plot_loss");
  output.device_tflops = options.get_float_or("device_tflops", 0);
  if (options.has_value("save_dtype"))
    output.final_dtype = dtype_from_name(options.get_string("save_dtype"));
  output.overwrite = options.get_bool("overwrite_output_dir");
  output.begins_anew = options.get_bool("finetune") && !options.is_given("resume");
  output.resume = output.begins_anew ? "none" : options.get_string("resume");
  if (output.resume == "true" || output.resume == "True") output.resume = "auto";
  if (output.resume == "false" || output.resume == "False") output.resume = "none";

  // A directory the user named is taken as it is, so that the same command resumes; Danlu's own
  // `output` collects runs side by side.
  output.versioned = options.get_bool_or("version_dir", !options.is_set("output_dir"));
  const fs::path base = options.get_string("output_dir");
  output.directory = output.versioned ? base / model_name : base;
  return output;
}

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

void put_processes(const Options& options, const RankPlace& place, TrainConfig& config) {
  config.place = place;
  const int64_t all =
      config.is_planned ? place.size : std::max(place.size, restart_from_environment().ranks);
  config.mesh = mesh_from(options, all);
  config.batch.ranks = config.mesh.data;
  const int64_t copy = config.mesh.per_batch();
  if (place.size % copy != 0) {
    throw UsageError(tr("[train] a micro-batch takes {} ranks: of {} ranks {} are left, "
                        "which are no multiple of it",
                        copy, all, place.size),
                     tr("the same command goes on when all machines are there again"));
  }
  config.mesh.data = place.size / copy;
  config.pipeline = pipeline_from(options);
  config.order = order_from(options, config.pipeline);
  config.mesh.ring = config.pipeline.is_virtual();
  config.shares_cache = !options.get_bool_or("no_shared_storage", false);
  config.dist_timeout_s = options.has_value("distributed_timeout_minutes")
                              ? 60 * options.get_float("distributed_timeout_minutes")
                              : options.get_float("ddp_timeout");
}

void check_schedule(int64_t chunks, TrainConfig& config) {
  config.chunks = chunks;
  config.mesh.ring = chunks > 1;
  const int64_t stages = config.mesh.pipeline, micro_batches = accumulation_of(config.batch);
  const int64_t batch = config.batch.micro_batch_size * config.batch.ranks * stages;
  require_schedule({config.order, config.keeping.sharding, stages, chunks, micro_batches},
                   config.batch.global_batch_size > 0
                       ? fmt::format("{} {}", config.flag("global_batch_size"), batch)
                       : fmt::format("{} {}", config.flag("accum"), stages));
  if (chunks == 1 && config.order == arch::PipelineOrder::kInterleaved)
    config.order = arch::PipelineOrder::kOneForwardOneBackward;  // one virtual stage each
}

/// What the model's description alone can tell to be wrong.
void check_with_model(const Options& options, const arch::ModelConfig& model, TrainConfig& config) {
  const int64_t positions = window_of(config.verb, model);
  if (config.data.max_length > positions) {
    throw UsageError(
        tr("[train] {} {} exceeds the model's {} positions", config.flag("max_length"),
           config.data.max_length, positions),
        tr("give --max_length {}; where nothing names it, the model's own limit is taken, up "
           "to 2048",
           positions));
  }
  arch::require_divides(model, config.mesh.tensor);
  require_shared_heads(options, model, config.mesh);
  const std::vector<arch::Stage> stages = arch::stages_of(model, config.pipeline);
  check_schedule(stages.front().num_chunks(), config);
  size_t layers = 0;
  for (const arch::Stage& stage : stages) layers = std::max(layers, stage.layers().size());
  report_more_layers(options, static_cast<int64_t>(layers));
  if (!config.model.adapter.empty())
    check_adapter_flags(options, config.model.adapter, config.lora.target_modules, model);
  check_module_names(config, model);
}

void report_notable(const Options& options, const TrainConfig& config) {
  report_loss_scale(config);
  report_idle_flags(options, config);
}

/// Of the whole job, then of the ranks that it has: where some are lost a step stays what it was,
/// and the others take its micro-batches.
void validate_ranks(TrainConfig& config) {
  config.validate();
  BatchConfig& batch = config.batch;
  if (batch.ranks == config.mesh.data) return;
  batch.global_batch_size = samples_of_step(batch);
  batch.accumulation = 0;
  batch.ranks = config.mesh.data;
  config.validate();
}

}  // namespace

std::optional<Precision> precision_of(const Options& options) {
  const bool bf16 = options.get_bool_or("bf16", false), fp16 = options.get_bool_or("fp16", false);
  if (bf16 && fp16) throw UsageError(tr("[dtype] --bf16 and --fp16 are both on; choose one"));
  const std::string name = options.get_string_or("dtype", "auto");
  std::optional<Precision> named;
  if (name != "auto" && name != "AUTO") named = precision_named(name);
  if (!bf16 && !fp16) return named;
  const Precision flagged = bf16 ? Precision::kBF16 : Precision::kF16;
  if (named && options.is_given("dtype") && *named != flagged) {
    throw UsageError(tr("[dtype] {} {} disagrees with {} true", options.given_as("dtype"), name,
                        options.given_as(bf16 ? "bf16" : "fp16")));
  }
  return flagged;
}

Precision training_precision(const Options& options) {
  return precision_of(options).value_or(Precision::kBF16);
}

namespace {

/// Reads the options of one process of a job, or, for a plan, those of the job that `place`
/// describes. `model` becomes the model that they name.
TrainConfig read_config(const std::string& verb, const Options& options, const RankPlace& place,
                        bool is_planned, arch::ModelConfig& model) {
  if (!options.get_bool_or("do_train", true)) {
    throw UsageError(
        tr("[train] {}: this command trains", option_text::given_switch(options, "do_train")),
        tr("danlu infer answers data sets with a model"));
  }
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
  NamedModel named = is_planned ? model_to_plan(options, config.task, verb != kPlanVerb)
                                : model_to_train(options, config.task);
  config.model = std::move(named.source);
  model = std::move(named.config);
  arch::require_runnable(model);
  config.lora = lora_from(options, model);
  config.freeze = options.get_list("freeze");
  config.data = data_from(options, config.task, config.seed, /*looks=*/!is_planned);
  config.data.max_length = max_length_from(options, window_of(verb, model));
  config.batch = batch_from(options);
  put_processes(options, place, config);
  put_sharding(options, config);
  config.schedule = schedule_from(options, config.tuner);
  config.adamw = adamw_from(options);
  put_loss_scale(options, config);
  config.max_grad_norm = options.get_float("max_grad_norm");
  config.max_bad_steps = options.get_int("max_bad_steps");
  config.output =
      output_from(options, options.get_string_or("model_type", base_name(config.model.path)));
  record_settings(options, config);
  if (options.has_value("deepspeed"))
    apply_deepspeed(options.get_string("deepspeed"), options, config);
  check_architecture_flags(options, model);
  report_notable(options, config);
  validate_ranks(config);
  check_with_model(options, model, config);
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
