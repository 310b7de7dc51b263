#include "settings/options/output_options.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/nearest_name.h"
#include "settings/options/sharding.h"

namespace danlu::settings {
namespace {

/// By what needs evaluations while it trains.
bool needs_evaluations(const Options& options) {
  return options.get_bool("load_best_model_at_end") || options.is_given("early_stop_interval");
}

/// In other words than --eval_strategy.
bool is_told_to_evaluate(const Options& options) {
  return options.get_bool_or("do_eval", false) || needs_evaluations(options);
}

Interval interval_from(const Options& options, const char* name, const std::string& usual) {
  const std::string text = options.get_string_or(name, usual);
  if (text == "best") return Interval::kBest;
  return text == "no" ? Interval::kNo : text == "epoch" ? Interval::kEpoch : Interval::kSteps;
}

/// What ms-swift 3's --eval_strategy is where it is not given.
std::string strategy_of_saving(const Options& options) {
  const std::string saving = options.get_string_or("save_strategy", "steps");
  return is_of_swift3(options) && saving != "best" ? saving : "steps";
}

Interval evaluation_interval(const Options& options) {
  if (!evaluates(options)) return Interval::kNo;
  // do_eval alone asks LLaMA-Factory for one evaluation, of the finished model.
  if (options.source("eval_strategy") == OptionSource::kProfile)
    return needs_evaluations(options) ? Interval::kSteps : Interval::kEnd;
  return interval_from(options, "eval_strategy", strategy_of_saving(options));
}

/// Errors: UsageError where a line of ms-swift goes on from a checkpoint with its weights alone.
void refuse_half_a_resumption(const Options& options) {
  if (!options.get_bool("finetune") || !options.is_given("resume")) return;
  std::string flag = options.given_as("finetune");
  std::replace(flag.begin(), flag.end(), '-', '_');
  if (!flag.ends_with("resume_only_model")) return;
  static const std::vector<std::string> kRules = {"auto", "none", "true", "True", "false", "False"};
  const std::string from = options.get_string("resume");
  if (std::count(kRules.begin(), kRules.end(), from)) return;
  throw UsageError(
      tr("[train] {} beside {} {}: a checkpoint is gone on from with all of its state, optimizer "
         "and schedule included",
         options.given_as("finetune"), options.given_as("resume"), from),
      tr("a new run from its weights alone: leave both out, and give it as --model, a "
         "checkpoint of adapters as --adapters; to go on with the run, leave out {}",
         options.given_as("finetune")));
}

/// Steps, or below 1 a part of all, as transformers has it. Errors: UsageError.
void take_steps(const Options& options, const char* name, int64_t& steps, double& share) {
  if (!options.has_value(name)) return;
  const double told = options.get_float(name);
  if (told < 1) {
    share = told;
    return;
  }
  if (told != std::floor(told) || told > 1e15)
    throw UsageError(
        tr("[train] {} {}: expected whole steps, or a part below 1", options.given_as(name), told));
  steps = static_cast<int64_t>(told);
}

/// Errors: UsageError for words that name no tracker.
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
      log::notice(
          "{} {}: nothing is sent anywhere; logging.jsonl and TensorBoard files hold every figure",
          flag, word);
      continue;
    }
    std::string hint;
    std::vector<std::string> known = kBuiltIn;
    if (const auto near = nearest_name(word, known)) hint = tr("did you mean '{}'?", *near);
    throw UsageError(tr("[train] {}: expected tensorboard or none, got '{}'", flag, word), hint);
  }
  return wanted;
}

/// By which figure of evaluations checkpoints are compared, as transformers names it.
void take_best_metric(const Options& options, OutputConfig& output) {
  std::string name = options.get_string("metric_for_best_model");
  if (name.starts_with("eval_")) name.erase(0, 5);
  if (name == "acc" && is_of_swift(options.profile().name)) name = "token_acc";
  if (name == "loss") {
    if (options.get_bool_or("greater_is_better", false))
      log::notice("{} has no effect: of losses the least is best",
                  options.given_as("greater_is_better"));
    return;
  }
  output.best_metric = name;
  output.best_is_greatest = options.get_bool_or("greater_is_better", !name.ends_with("loss"));
}

}  // namespace

OutputConfig output_from(const Options& options, const std::string& model_name) {
  refuse_half_a_resumption(options);
  OutputConfig output;
  output.save = interval_from(options, "save_strategy", "steps");
  output.evaluate = evaluation_interval(options);
  take_steps(options, "save_steps", output.save_steps, output.shares.save);
  take_steps(options, "eval_steps", output.eval_steps, output.shares.eval);
  take_steps(options, "logging_steps", output.logging_steps, output.shares.logging);
  output.save_total_limit = std::max<int64_t>(0, options.get_int("save_total_limit"));
  output.save_only_model = options.get_bool("save_only_model");
  const bool in_megatrons = options.get_string("save_format") == "mcore";
  output.save_format = in_megatrons ? SaveFormat::kMegatron : SaveFormat::kHf;
  output.distributed_optimizer = sharding_from(options) != Sharding::kNone;
  output.vocab_divisor = options.get_int_or("make_vocab_size_divisible_by", 1);
  output.merges_adapters = options.get_bool_or("merge_lora", false);
  output.adapters_alone = options.get_bool_or("lora_ckpt_filter", false);
  output.overlap_grad_reduce = options.get_bool_or("overlap_grad_reduce", false);
  output.transformer_engine =
      options.get_string_or("transformer_impl", "local") == "transformer_engine";
  take_best_metric(options, output);
  output.load_best_at_end = options.get_bool("load_best_model_at_end");
  output.eval_batches = std::max<int64_t>(0, options.get_int_or("eval_iters", 0));
  const std::string& system = options.profile().name;
  output.eval_counts_steps = system == "mindspeed" || system == "megatron-swift";
  output.early_stop = options.get_int_or("early_stop_interval", 0);
  output.stops_at_saves = is_of_swift3(options);
  // Elsewhere the best is one of the checkpoints that the line asks for.
  output.saves_best =
      system == "danlu" || output.load_best_at_end || output.save == Interval::kBest;
  output.log_first_step = options.get_bool("logging_first_step");
  const std::string format = options.get_string("log_format");
  output.log_format = format == "hf"         ? LogFormat::kHf
                      : format == "megatron" ? LogFormat::kMegatron
                                             : LogFormat::kDanlu;
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
  // ms-swift 2 sorts the runs of any directory by their models, ms-swift 3 its own `output` alone.
  const bool by_model =
      output.versioned && (!options.is_set("output_dir") || options.profile().name == "swift24");
  output.directory = by_model ? base / model_name : base;
  return output;
}

bool is_of_swift3(const Options& options) {
  const std::string& system = options.profile().name;
  return system == "swift3" || system == "megatron-swift";
}

bool evaluates(const Options& options) {
  // A profile's "no" says that the Trainer evaluates where it is told to.
  if (options.source("eval_strategy") == OptionSource::kProfile)
    return is_told_to_evaluate(options);
  if (options.has_value("eval_strategy")) return options.get_string("eval_strategy") != "no";
  if (strategy_of_saving(options) == "no") return false;
  if (!options.get_bool_or("do_eval", true)) return false;
  return !(options.is_set("eval_iters") && options.get_int("eval_iters") == 0);
}

}  // namespace danlu::settings
