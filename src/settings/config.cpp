#include "settings/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace danlu::settings {
namespace {

/// Refuses values under the names that the user gave them.
class Checker {
 public:
  explicit Checker(const TrainConfig& config) : config_(config) {}

  [[noreturn]] void refuse(const char* option, const std::string& got, const std::string& rule,
                           std::string hint = {}) const {
    throw UsageError(tr("[train] {} {}: {}", config_.flag(option), got, rule), std::move(hint));
  }
  void at_least(const char* option, int64_t got, int64_t least) const {
    if (got < least) refuse(option, std::to_string(got), tr("must be at least {}", least));
  }
  /// `holds` is the rule's outcome, so that NaN fails it.
  void number(const char* option, double got, bool holds, const char* rule) const {
    if (!holds) refuse(option, fmt::format("{}", got), rule);
  }

 private:
  const TrainConfig& config_;
};

std::string nearest_multiples(int64_t got, int64_t of) {
  const int64_t below = got / of * of;
  return below == 0 ? tr("the nearest that fits is {}", of)
                    : tr("the nearest that fit are {} and {}", below, below + of);
}

void check_global_batch(const Checker& check, const TrainConfig& config) {
  const BatchConfig& batch = config.batch;
  if (batch.global_batch_size <= 0) return;
  const std::string got = std::to_string(batch.global_batch_size);
  const int64_t together = batch.micro_batch_size * batch.ranks;
  const std::string micro = config.said("batch_size", batch.micro_batch_size);
  if (batch.ranks == 1 && batch.global_batch_size % batch.micro_batch_size != 0)
    check.refuse("global_batch_size", got, tr("must be a multiple of {}", micro),
                 nearest_multiples(batch.global_batch_size, together));
  if (batch.global_batch_size % together != 0) {
    check.refuse("global_batch_size", got,
                 tr("must be a multiple of {} × {} = {}", micro, config.said_ranks(), together),
                 nearest_multiples(batch.global_batch_size, together));
  }
  if (batch.accumulation == 0 || batch.accumulation * together == batch.global_batch_size) return;
  const std::string accumulation = config.said("accum", batch.accumulation);
  check.refuse("global_batch_size", got,
               batch.ranks == 1 ? tr("differs from {} × {} = {}", micro, accumulation,
                                     together * batch.accumulation)
                                : tr("differs from {} × {} × {} = {}", micro, accumulation,
                                     config.said_ranks(), together * batch.accumulation));
}

void check_batch(const Checker& check, const TrainConfig& config) {
  const BatchConfig& batch = config.batch;
  check.at_least("batch_size", batch.micro_batch_size, 1);
  if (batch.accumulation != 0) check.at_least("accum", batch.accumulation, 1);
  if (batch.eval_batch_size != 0) check.at_least("eval_batch_size", batch.eval_batch_size, 1);
  check_global_batch(check, config);
  if (batch.max_steps > 0 || batch.train_samples > 0) return;
  check.number("epochs", batch.epochs, batch.epochs > 0 && std::isfinite(batch.epochs),
               "must be positive (or give --max_steps)");
}

void check_lora(const Checker& check, const weights::PeftConfig& lora) {
  check.at_least("lora_rank", lora.rank, 1);
  check.number("lora_alpha", lora.alpha, lora.alpha > 0, "must be positive");
  check.number("lora_dropout", lora.dropout, lora.dropout >= 0 && lora.dropout < 1,
               "must be in [0, 1)");
  if (lora.target_modules.empty()) check.refuse("lora_target", "(empty)", "names no module");
}

/// Adapters that begin with a part of their base.
void check_start(const Checker& check, const TrainConfig& config) {
  const auto refuse = [&](const std::string& why, const std::string& instead) {
    check.refuse(config.given_as.contains("pissa_init") ? "pissa_init" : "init_weights",
                 config.lora.start.name(), why, instead);
  };
  if (config.lora.dora)
    refuse(tr("DoRA's row lengths do not go with it"), tr("leave --use_dora out"));
  if (!config.model.adapter.empty())
    refuse(tr("{} has adapters that have begun", config.model.adapter.string()),
           tr("leave it out: they are trained further"));
  if (!config.keeping.state_in.empty())
    refuse(tr("half of each adapter stays as it is, which the state in files does not know"),
           tr("leave --offload_dir out: the state of adapters is small"));
}

/// What --save_format mcore can hold.
void check_megatron(const Checker& check, const TrainConfig& config) {
  const auto refuse = [&](const std::string& why) {
    check.refuse("save_format", "mcore", why,
                 tr("--save_format hf; danlu convert --to mcore writes the merged model"));
  };
  if (config.tuner == Tuner::kFreeze)
    refuse(tr("with --tuner {}: Megatron's format holds whole models and their state",
              tuner_name(config.tuner)));
  if (config.model.score)
    refuse(tr("of a reward model: Megatron's format is written of models with a vocabulary"));
  if (config.tuner != Tuner::kLora) return;
  const weights::PeftConfig& lora = config.lora;
  const auto has_target = [&](const char* module) {
    return std::any_of(lora.target_modules.begin(), lora.target_modules.end(),
                       [&](const std::string& name) { return weights::is_named(name, module); });
  };
  if (lora.dora || !lora.modules_to_save.empty() || has_target("embed_tokens") ||
      has_target("lm_head"))
    refuse(tr("MindSpeed's LoRA has no form for DoRA, modules saved whole, embedding and head"));
  if (config.model.from_scratch)
    refuse(tr("with --tuner {}: there is no base model to write beside the adapters",
              tuner_name(config.tuner)));
}

/// By which flag the optimizer was chosen, and which it is.
std::pair<std::string, std::string> optimizer_said(const TrainConfig& config) {
  const AdamWConfig& adamw = config.adamw;
  const auto [flag, name] = adamw.muon   ? std::pair{"use_muon", "muon"}
                            : adamw.mini ? std::pair{"use_adam_mini", "adam_mini"}
                            : adamw.low_rank->method == LowRankConfig::Method::kGalore
                                ? std::pair{"use_galore", "galore"}
                                : std::pair{"use_apollo", "apollo"};
  if (config.given_as.contains(flag)) return {flag, "true"};
  return {"optim", name};
}

/// What optimizers that see whole matrices need.
void check_whole_matrices(const Checker& check, const TrainConfig& config) {
  const auto refuse = [&](const std::string& why, const std::string& instead) {
    const auto [flag, name] = optimizer_said(config);
    check.refuse(flag.c_str(), config.adamw.muon ? "muon" : name, why, instead);
  };
  if (config.adamw.low_rank && config.tuner == Tuner::kLora)
    refuse(tr("adapters are of low rank themselves"), tr("--tuner full, or another --optim"));
  if (!config.keeping.state_in.empty())
    refuse(tr("its matrices are updated whole, in memory, not in files"),
           tr("leave {} out; --shard zero1 shares the state among processes",
              config.flag(config.given_as.contains("offload") ? "offload" : "deepspeed")));
  if (config.mesh.expert_dealers > 1 && config.mesh.expert_tensor() > 1) {
    refuse(tr("{} processes cut every expert, beside others that cut other experts",
              config.mesh.expert_tensor()),
           tr("--expert_tensor_parallel_size 1 has experts whole, {} has every process of the "
              "tensor axis cut all of them",
              config.mesh.tensor));
  }
  if (config.output.save_format == SaveFormat::kMegatron && !config.output.save_only_model &&
      config.tuner == Tuner::kFull) {
    refuse(tr("Megatron's format is written with the state of Adam alone"),
           tr("--save_format hf, or --save_only_model true"));
  }
}

void check_turns(const Checker& check, const TrainConfig& config) {
  const LayerTurns& turns = *config.adamw.turns;
  const auto refuse = [&](const std::string& why, const std::string& instead) {
    if (turns.is_badam) check.refuse("use_badam", "true", why, instead);
    check.refuse("lisa_activated_layers", std::to_string(turns.layers), why, instead);
  };
  if (config.tuner != Tuner::kFull)
    refuse(tr("layers take turns where all of them are trained"), tr("--tuner full"));
  if (!config.keeping.state_in.empty() || config.mesh.pipeline > 1)
    refuse(tr("layers that have no turn have neither gradients nor an update, which state in files "
              "and stages of a pipeline do not know"),
           tr("--shard shares the state, --tp cuts layers"));
  if (config.output.save_format == SaveFormat::kMegatron && !config.output.save_only_model)
    refuse(tr("Megatron's format is written with the state of Adam alone"),
           tr("--save_format hf, or --save_only_model true"));
}

/// The model as it was is a whole one, that is held beside the one that is trained.
void check_anchor(const TrainConfig& config) {
  if (config.objective.anchor_weight == 0 || config.holds_reference()) return;
  throw UsageError(tr("[train] {} with {}: it measures from a whole model as it was",
                      config.flag("use_asft_loss"), config.said("tuner", tuner_name(config.tuner))),
                   tr("--tuner full, or --ref_model DIR names the model that is measured from"));
}

void check_output(const Checker& check, const TrainConfig& config) {
  check_anchor(config);
  const OutputConfig& output = config.output;
  check.at_least("save_steps", output.save_steps, 1);
  check.at_least("logging_steps", output.logging_steps, 1);
  if (output.load_best_at_end && output.save == Interval::kNo)
    check.refuse("load_best_model_at_end", "true",
                 tr("needs checkpoints to load from, {} is no", config.flag("save_strategy")));
  if (output.load_best_at_end && output.evaluate == Interval::kNo)
    check.refuse("load_best_model_at_end", "true", "needs evaluations, and none are asked for");
  if (output.save == Interval::kBest && output.evaluate == Interval::kNo)
    check.refuse("save_strategy", "best", "needs evaluations, and none are asked for");
  if (output.early_stop > 0 && output.evaluate == Interval::kNo)
    check.refuse("early_stop_interval", std::to_string(output.early_stop),
                 "needs evaluations, and none are asked for");
}

}  // namespace

void OutputConfig::count_shares(int64_t total_steps) {
  const auto count = [&](double share, int64_t& steps) {
    if (share > 0) steps = steps_of_share(share, total_steps);
  };
  count(shares.save, save_steps);
  count(shares.eval, eval_steps);
  count(shares.logging, logging_steps);
}

int64_t steps_of_share(double share, int64_t total_steps) {
  return std::max<int64_t>(
      1, static_cast<int64_t>(std::ceil(static_cast<double>(total_steps) * share)));
}

std::string task_name(Task task) { return task == Task::kPretrain ? "pretrain" : "sft"; }

std::string tuner_name(Tuner tuner) {
  return tuner == Tuner::kFull ? "full" : tuner == Tuner::kLora ? "lora" : "freeze";
}

std::string precision_name(Precision precision) {
  return precision == Precision::kF32 ? "fp32" : precision == Precision::kBF16 ? "bf16" : "fp16";
}

bool TrainConfig::holds_reference() const {
  if (!objective.has_reference()) return false;
  const bool has_adapters = !model.adapter.empty() && !objective.base_is_reference;
  return !objective.reference.empty() || tuner != Tuner::kLora || has_adapters;
}

std::string TrainConfig::flag(const std::string& option) const {
  const auto at = given_as.find(option);
  return at == given_as.end() ? "--" + option : at->second;
}

std::string TrainConfig::said(const std::string& option, int64_t value) const {
  return said(option, std::to_string(value));
}

std::string TrainConfig::said(const std::string& option, const std::string& value) const {
  const std::string text = fmt::format("{} {}", flag(option), value);
  return given_as.count(option) ? text : tr("{} (by default)", text);
}

std::string TrainConfig::said_ranks() const {
  const std::string ranks = batch.ranks == 1 ? tr("1 process") : tr("{} processes", batch.ranks);
  const int64_t copy = mesh.per_batch();
  if (copy == 1) return ranks;
  std::vector<std::string> sizes;
  if (mesh.tensor > 1) sizes.push_back(fmt::format("{} {}", flag("tp"), mesh.tensor));
  if (mesh.pipeline > 1) sizes.push_back(fmt::format("{} {}", flag("pp"), mesh.pipeline));
  if (!mesh.context.is_alone())
    sizes.push_back(fmt::format("{} {}", flag("cp"), mesh.context.size()));
  return tr("{} ({} / {})", ranks, batch.ranks * copy, fmt::join(sizes, " / "));
}

void TrainConfig::validate() const {
  const Checker check(*this);
  if (data.train.empty() && !is_planned) {
    check.refuse("dataset", "(none)", "no training data was named",
                 tr("name files, directories or .bin/.idx prefixes: --dataset data.jsonl"));
  }
  check.at_least("max_length", data.max_length, 2);
  check.number("val_ratio", data.validation_ratio,
               data.validation_ratio >= 0 && data.validation_ratio < 1, "must be in [0, 1)");
  check_batch(check, *this);
  if (tuner == Tuner::kLora) check_lora(check, lora);
  if (tuner == Tuner::kLora && lora.start.takes_from_base()) check_start(check, *this);
  if (output.save_format == SaveFormat::kMegatron) check_megatron(check, *this);
  if (tuner == Tuner::kFreeze && freeze.empty()) {
    check.refuse("tuner", "freeze", "needs --freeze PATTERN…: which parameters stay as they are");
  }
  const bool thaws = std::any_of(freeze.begin(), freeze.end(), [](const std::string& pattern) {
    return pattern.starts_with('!');
  });
  if (tuner == Tuner::kLora && thaws) {
    check.refuse("freeze", fmt::format("{}", fmt::join(freeze, " ")),
                 tr("adapters are all that --tuner lora saves: the base weights that '!' trains "
                    "would be lost"),
                 tr("--modules_to_save NAME trains modules whole and saves them beside"));
  }
  if (tuner != Tuner::kLora && !model.adapter.empty()) {
    check.refuse(
        "adapters", model.adapter.string(),
        tr("--tuner {} trains the base weights; merge the adapter first", tuner_name(tuner)),
        "danlu merge --model BASE --adapters " + model.adapter.string() + " --output DIR");
  }
  if (model.from_scratch && tuner == Tuner::kLora)
    check.refuse("from_scratch", "true", "random weights need --tuner full");
  check.number("warmup_ratio", schedule.warmup_ratio,
               schedule.warmup_ratio >= 0 && schedule.warmup_ratio <= 1, "must be in [0, 1]");
  check.number("max_grad_norm", max_grad_norm, max_grad_norm >= 0, "must be 0 (off) or positive");
  check.number("neftune_noise_alpha", noise_alpha, noise_alpha >= 0 && std::isfinite(noise_alpha),
               "must be 0 (off) or positive");
  if (noise_alpha > 0 && objective.draws()) {
    check.refuse("neftune_noise_alpha", fmt::format("{}", noise_alpha),
                 tr("answers that the model draws itself are learnt as they were drawn, without "
                    "noise"));
  }
  check.at_least("max_bad_steps", max_bad_steps, 1);
  check_output(check, *this);
  schedule.shape.validate();
  adamw.validate();
  if (adamw.muon || adamw.low_rank || adamw.mini) check_whole_matrices(check, *this);
  if (adamw.turns) check_turns(check, *this);
  loss_scale.validate();
}

}  // namespace danlu::settings
