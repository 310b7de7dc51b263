#include "settings/options/idle_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/log.h"
#include "data/megatron/preference_datasets.h"
#include "settings/options/loss_scale.h"
#include "settings/options/media_flags.h"
#include "settings/options/objective_options.h"
#include "settings/options/schedule_options.h"

namespace danlu::settings {
namespace {

struct Rule {
  bool idle;
  std::vector<const char*> options;
  std::string beside;  ///< what makes them idle
};

std::string with(const Options& options, const char* option, const std::string& value = "") {
  return tr("with {}", options.given_as(option) + (value.empty() ? "" : " " + value));
}

std::vector<Rule> schedule_rules(const Options& options, const TrainConfig& config) {
  const ScheduleKind kind = config.schedule.shape.kind;
  const std::string beside = with(options, "lr_scheduler", schedule_name(kind));
  const bool steps = config.schedule.warmup_steps.has_value();
  const bool wsd = kind == ScheduleKind::kWarmupStableDecay;
  const bool counts_steps =
      options.get_int("max_steps") > 0 || options.get_int_or("train_samples", 0) > 0;
  return {
      {leaves_warmup_out(options),
       {"warmup_ratio", "lr_warmup_fraction", "warmup_steps"},
       tr("{}: constant_with_warmup has a warm-up", with(options, "lr_scheduler", "constant"))},
      {steps, {"warmup_ratio", "lr_warmup_fraction"}, with(options, "warmup_steps")},
      {!steps && config.schedule.warmup_fraction.has_value(),
       {"warmup_ratio"},
       with(options, "lr_warmup_fraction")},
      {kind != ScheduleKind::kCosineWithRestarts, {"lr_num_cycles"}, beside},
      {kind != ScheduleKind::kPolynomial, {"lr_power"}, beside},
      {!wsd, {"wsd_decay_steps", "wsd_decay_style"}, beside},
      {config.batch.max_steps > 0, {"epochs"}, with(options, "max_steps")},
      {counts_steps && config.batch.max_steps <= 0 && config.batch.train_samples <= 0,
       {"max_steps", "train_samples"},
       with(options, "epochs")},
      {config.batch.max_steps > 0, {"train_samples"}, with(options, "max_steps")},
      {config.batch.max_steps <= 0 && config.batch.train_samples > 0,
       {"epochs"},
       with(options, "train_samples")},
  };
}

/// Whether samples may lie in packs that were made before.
bool has_files_of_samples(const DataConfig& data) {
  const auto are_samples = [](const std::string& name) { return data::samples_exist(name); };
  return std::any_of(data.train.begin(), data.train.end(), are_samples) ||
         std::any_of(data.validation.begin(), data.validation.end(), are_samples);
}

std::vector<Rule> row_rules(const TrainConfig& config) {
  const bool pretrain = config.task == Task::kPretrain;
  const bool fills_rows = pretrain && config.data.uses_template;
  const bool in_packs = !pretrain && has_files_of_samples(config.data);
  std::vector<const char*> of_documents = {"append_eod", "eod_mask_loss"};
  if (!in_packs)
    of_documents.insert(of_documents.end(), {"reset_attention_mask", "reset_position_ids"});
  return {
      {!fills_rows, of_documents, tr("in sft: samples are apart from one another as it is")},
      {in_packs && !config.data.reset_attention_mask,
       {"reset_position_ids"},
       tr("in sft without --reset_attention_mask")},
      {pretrain || config.objective.kind != ObjectiveKind::kLanguage,
       {"loss_average", "calculate_per_token_loss"},
       tr("in {}", config.objective.name.empty() ? task_name(config.task) : config.objective.name)},
      {pretrain,
       {"template", "templates_file", "system", "train_on_prompt", "mask_history",
        "enable_thinking", "model_name", "model_author"},
       tr("in pretrain: rows are plain text")},
      {(fills_rows && !config.data.texts_end_epochs) ||
           config.objective.kind == ObjectiveKind::kPolicy,
       {"dataloader_drop_last"},
       tr("here: the step goes on into the next epoch")},
  };
}

std::vector<Rule> adapter_rules(const Options& options, const TrainConfig& config) {
  const bool lora = config.tuner == Tuner::kLora;
  return {
      {!lora,
       {"lora_rank", "lora_alpha", "lora_dropout", "lora_target", "lora_modules_to_save",
        "use_rslora", "use_dora", "merge_lora", "target_regex", "init_weights", "pissa_init",
        "pissa_iter"},
       tr("with --tuner {}", tuner_name(config.tuner))},
      {lora && options.has_value("target_regex"),
       {"lora_target", "freeze_vit", "freeze_aligner", "freeze_llm"},
       with(options, "target_regex")},
      {!options.get_bool_or("optimizer_cpu_offload", false),
       {"optimizer_offload_fraction"},
       tr("without --optimizer_cpu_offload")},
  };
}

std::vector<const char*> flags_of_pictures() {
  std::vector<const char*> flags = media_flag_names();
  flags.push_back("dataloader_num_workers");
  return flags;
}

std::vector<Rule> run_rules(const Options& options, const TrainConfig& config) {
  const bool lora = config.tuner == Tuner::kLora, pretrain = config.task == Task::kPretrain;
  const bool of_megatron = config.output.save_format == SaveFormat::kMegatron;
  const auto interval = [](Interval value) {
    return value == Interval::kNo ? "no" : value == Interval::kBest ? "best" : "epoch";
  };
  return {
      {config.tuner != Tuner::kFreeze,
       {"freeze_trainable_layers", "freeze_trainable_modules", "freeze_extra_modules",
        "use_llama_pro"},
       tr("with --tuner {}", tuner_name(config.tuner))},
      {config.mesh.tensor == 1, {"sequence_parallel"}, with(options, "tp", "1")},
      {config.mesh.context.is_alone(),
       {"context_parallel_algo", "ulysses_degree_in_cp", "cp_window_size"},
       with(options, "cp", "1")},
      {config.activation_offload.to == OffloadTo::kNone,
       {"activation_offload_num_layers", "activation_offload_modules"},
       tr("without --activation_offload")},
      {!of_megatron,
       {"make_vocab_size_divisible_by", "transformer_impl", "lora_ckpt_filter"},
       tr("without --save_format mcore")},
      {!of_megatron,
       {"overlap_grad_reduce"},
       tr("here: sums and gathers always run beside the passes")},
      {lora, {"save_dtype"}, tr("with --tuner lora: adapters are saved in --dtype")},
      {config.precision != Precision::kF16,
       {"initial_loss_scale", "loss_scale_window", "hysteresis", "min_loss_scale"},
       tr("in {}", precision_name(config.precision))},
      {config.precision != Precision::kF16 && !names_learnt_part(options),
       {"loss_scale"},
       tr("in {}", precision_name(config.precision))},
      {pretrain && names_learnt_part(options),
       {"loss_scale"},
       tr("in pretrain: rows are plain text")},
      {config.output.save != Interval::kSteps,
       {"save_steps"},
       with(options, "save_strategy", interval(config.output.save))},
      {config.output.evaluate != Interval::kSteps,
       {"eval_steps"},
       config.output.evaluate == Interval::kNo    ? tr("without evaluation")
       : config.output.evaluate == Interval::kEnd ? tr("with one at the end")
                                                  : tr("with one each epoch")},
      {!data::reads_media(processor_directory(config)), flags_of_pictures(),
       tr("with a model that reads text alone")},
      {true, flags_without_use(config.objective),
       tr("in {}", config.objective.name.empty() ? task_name(config.task) : config.objective.name)},
      {options.get_bool_or("streaming", false) && !is_of_swift(options.profile().name),
       {"streaming"},
       tr("here: rows are streamed into a cache of tokens once")},
      {options.has_value("model") || options.has_value("load"),
       {"model_type"},
       tr("where the model's directory is named")},
      {config.model.described.is_null(),
       {"init_method_std"},
       tr("beside config.json, whose initializer_range decides")},
  };
}

/// For a pipeline that there is none of: what was asked for is more than a flag.
Rule pipeline_rule(const Options& options, const TrainConfig& config) {
  return {
      config.mesh.pipeline == 1,
      {"num_layer_list", "decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers",
       "noop_layers", "num_layers_per_virtual_pipeline_stage",
       "num_virtual_stages_per_pipeline_rank", "pipeline_schedule", "enable_zero_bubble"},
      tr("{}: there is no pipeline", with(options, "pp", "1"))};
}

std::vector<std::string> idle_by(const Rule& rule, const Options& options) {
  std::vector<std::string> idle;
  for (const char* option : rule.options) {
    if (rule.idle && options.is_given(option)) idle.push_back(options.given_as(option));
  }
  return idle;
}

std::string words_of(const std::vector<std::string>& idle, const std::string& beside) {
  return idle.size() == 1 ? tr("{} has no effect {}", idle.front(), beside)
                          : tr("{} have no effect {}", fmt::join(idle, ", "), beside);
}

}  // namespace

void say_always(const std::string& text) { log::info("notice: {}", text); }

void report_idle_flags(const Options& options, const TrainConfig& config) {
  const Rule pipeline = pipeline_rule(options, config);
  if (const auto idle = idle_by(pipeline, options); !idle.empty())
    say_always(words_of(idle, pipeline.beside));
  std::vector<Rule> rules = run_rules(options, config);
  for (std::vector<Rule> more :
       {adapter_rules(options, config), row_rules(config), schedule_rules(options, config)}) {
    for (Rule& rule : more) rules.push_back(std::move(rule));
  }
  std::vector<std::string> all;
  size_t reasons = 0;
  std::string reason;
  for (const Rule& rule : rules) {
    const std::vector<std::string> idle = idle_by(rule, options);
    if (idle.empty()) continue;
    if (log::verbose()) log::notice("{}", words_of(idle, rule.beside));
    all.insert(all.end(), idle.begin(), idle.end());
    reason = rule.beside;
    ++reasons;
  }
  if (log::verbose() || all.empty()) return;
  if (reasons == 1) return log::notice("{}", words_of(all, reason));
  log::notice("{} have no effect here (-v says why)", fmt::join(all, ", "));
}

}  // namespace danlu::settings
