#include "settings/options/reinforcement_options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <utility>

#include "base/checkpoint_name.h"
#include "base/error.h"
#include "base/log.h"
#include "base/lower_case.h"
#include "base/option_text.h"
#include "settings/model_source.h"
#include "settings/options/idle_flags.h"
#include "settings/options/model_names.h"
#include "weights/tensor_source.h"

namespace danlu::settings {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEnvironmentReward = "environment";

bool is_of_mindspeed(const Options& options) { return options.profile().name == "mindspeed"; }
bool is_of_megatron_swift(const Options& options) {
  return options.profile().name == "megatron-swift";
}

/// How far the ratio of probabilities counts, and how answers are drawn.
void take_clipping(const Options& options, PolicyLoss& loss) {
  loss.clip_low = options.get_float("epsilon");
  loss.clip_high = options.get_float_or("epsilon_high", loss.clip_low);
  loss.ratio_limit = options.get_float_or("delta", 0);
  loss.temperature = options.get_float("temperature");
  loss.longest = options.get_int("max_completion_length");
}

/// Errors: UsageError where nothing says how large a ratio may be.
void check_gate(const Options& options, const std::string& type, RatioGate gate) {
  if (gate == RatioGate::kClip) return;
  const std::string loss = options.given_as("loss_type") + " " + type;
  if (gate == RatioGate::kWeight && !options.has_value("epsilon_high")) {
    throw UsageError(tr("[train] {}: nothing says how large a ratio may be", loss),
                     tr("--epsilon_high 5 is usual"));
  }
  for (const char* flag : {"epsilon", "epsilon_high", "delta"}) {
    const bool is_read = gate == RatioGate::kWeight && std::string(flag) == "epsilon_high";
    if (is_read || !options.is_given(flag)) continue;
    log::notice("{} has no effect: {} holds ratios back in another way", options.given_as(flag),
                loss);
  }
}

/// ms-swift's names: what the loss is a mean over, and what holds ratios back.
void take_loss(const Options& options, PolicyLoss& loss) {
  const std::string type = lower_case(options.get_string_or("loss_type", "grpo"));
  if (type == "grpo") {
    loss.mean = LossMean::kRows;
  } else if (type == "sapo") {
    loss.gate = RatioGate::kSoft;
    loss.tau_positive = options.get_float("tau_pos");
    loss.tau_negative = options.get_float("tau_neg");
  } else if (type == "cispo") {
    loss.gate = RatioGate::kWeight;
    loss.mean = LossMean::kTokens;
  } else if (type == "bnpo" || type == "dapo") {
    loss.mean = LossMean::kTokens;
  } else if (type == "dr_grpo") {
    loss.mean = LossMean::kConstant;
  } else {
    throw UsageError(
        tr("[train] {} {}: {} has no such loss", options.given_as("loss_type"), type, "grpo"),
        tr("it has {}", "grpo, bnpo, dapo, dr_grpo, sapo, cispo"));
  }
  // ms-swift counts the answers of these losses before it leaves out what was cut, TRL after.
  loss.counts_cut = is_of_swift(options.profile().name) && (type == "dapo" || type == "cispo");
  check_gate(options, type, loss.gate);
  loss.ratio = options.get_string("importance_sampling_level") == "sequence" ? RatioLevel::kSequence
                                                                             : RatioLevel::kToken;
  loss.kl =
      options.is_given("beta") ? options.get_float("beta") : options.get_float_or("kl_beta", 0.04);
}

/// The critic of a PPO run: the finished one, else that of its newest checkpoint.
fs::path critic_in(const fs::path& named, const std::string& flag) {
  const fs::path folder = named / kCriticFolder;
  std::error_code unknown;
  if (!fs::is_directory(folder, unknown)) return named;
  const bool is_finished =
      weights::has_weights(folder) || fs::exists(folder / "adapter_config.json", unknown);
  fs::path found = is_finished ? folder : fs::path();
  int64_t newest = -1;
  for (const auto& entry : fs::directory_iterator(folder, unknown)) {
    const auto step = step_of_checkpoint(entry.path().filename().string());
    if (!step || *step <= newest || !fs::exists(entry.path() / "DONE", unknown)) continue;
    newest = *step;
    if (!is_finished) found = entry.path();
  }
  if (found.empty()) {
    throw ModelError(
        tr("[train] {} {}: a run whose critic was not saved yet", flag, named.string()),
        tr("name a model, or a reward model"));
  }
  log::info("{} {}: a run, of which {} is taken", flag, named.string(), found.string());
  return found;
}

/// PPO's critic, and its rewards of tokens.
void take_critic(const Options& options, Critic& critic) {
  if (options.is_given("beta")) {
    throw UsageError(tr("[train] {}: the loss of ppo has no such term", options.given_as("beta")),
                     tr("--kl_coef weighs the distance to the reference, in the rewards"));
  }
  if (options.has_value("critic_model"))
    critic.model = critic_in(
        locate_beside(options.get_string("critic_model"), options.given_as("critic_model")),
        options.given_as("critic_model"));
  critic.gamma = options.get_float("gamma");
  critic.lambda = options.get_float("lam");
  critic.clip = options.get_float("cliprange_value");
  critic.weight = options.get_float("vf_coef");
  critic.lr = options.get_float_or("critic_lr", 0);
  if (critic.lr == 0 && options.has_value("critic_lr")) {
    throw UsageError(tr("[train] {} 0: a critic that learns nothing expects nothing",
                        options.given_as("critic_lr")),
                     tr("leave it out: the critic then learns at --lr"));
  }
  // MindSpeed-LLM's, and that of TRL and ms-swift.
  critic.kl = options.get_float_or("kl_beta", is_of_mindspeed(options) ? 0.3 : 0.05);
  critic.kl_target = critic.kl > 0 ? options.get_float_or("ppo_target", 0) : 0;
  critic.missing_end_penalty = options.get_float("missing_eos_penalty");
  critic.whitens_rewards = options.get_bool("whiten_rewards");
}

/// Errors: UsageError where answers are compared with others to their prompt and there are none.
void require_others(const Options& options, const Reinforcement& told) {
  if (told.answers > 1 || told.advantage == Advantage::kWhitened) return;
  throw UsageError(
      tr("[train] {} 1: an answer is worth what it has beyond the others to its "
         "prompt, so nothing would be learnt from one alone",
         options.given_as("num_generations")),
      tr("--num_generations 8; --advantage_estimator reinforce_plus_plus_token compares "
         "answers to all prompts"));
}

/// DAPO's dynamic sampling. Errors: UsageError where an answer has none to differ from.
void take_resampling(const Options& options, Reinforcement& told) {
  if (!options.get_bool("dynamic_sample")) return;
  if (told.answers < 2) {
    throw UsageError(tr("[train] {}: one answer to each prompt has none to differ from",
                        options.given_as("dynamic_sample")),
                     tr("--num_generations draws several"));
  }
  told.max_resamples = options.get_int("max_resample_times");
}

/// In how many rollouts an answer is drawn. Errors: UsageError where it has too few tokens.
void take_parts(const Options& options, Reinforcement& told) {
  told.parts = options.get_int("partial_rollout_max_split");
  if (told.parts <= told.max_new_tokens) return;
  throw UsageError(tr("[train] {}: an answer of {} tokens has no so many parts",
                      options.given_as("partial_rollout_max_split"), told.max_new_tokens),
                   tr("--max_completion_length {} at least", told.parts));
}

/// How many answers are drawn at one time. ms-swift's and TRL's steps_per_generation counts
/// micro-batches, Megatron-SWIFT's and TRL's num_mini_batches of PPO steps. Errors: UsageError for
/// more than one flag.
void take_rollout_size(const Options& options, Reinforcement& told) {
  std::vector<std::string> given;
  for (const char* flag : {"num_mini_batches", "steps_per_generation", "generation_batch_size"}) {
    if (options.is_set(flag)) given.push_back(options.given_as(flag));
  }
  if (given.size() > 1) {
    throw UsageError(tr("[train] {} and {}: either says how many answers are drawn at one time",
                        given[0], given[1]),
                     tr("leave one of them out"));
  }
  told.steps = options.get_int("num_mini_batches");
  const int64_t together = options.get_int_or("steps_per_generation", 0);
  if (is_of_megatron_swift(options) && together > 0) {
    told.steps = together;
  } else {
    told.micro_batches_together = together;
  }
  told.answers_together = options.get_int_or("generation_batch_size", 0);
}

/// Errors: UsageError where the likeliest answer is to be taken; as stop_words_from().
void take_sampling(const Options& options, Reinforcement& told) {
  if (!options.get_bool("do_sample")) {
    throw UsageError(
        tr("[train] {}: answers are drawn by chance, since the likeliest one alone shows "
           "nothing better",
           option_text::given_switch(options, "do_sample")),
        tr("leave it out; --temperature near 0 draws likely answers, and held-out "
           "prompts get the likeliest one anyway"));
  }
  if (options.get_string_or("stage", "") == "trl_ppo" && !options.is_given("do_sample")) {
    say_always(
        tr("answers are drawn by chance; MindSpeed-LLM takes the likeliest ones where a line has "
           "no --do-sample"));
  }
  told.top_p = options.get_float("top_p");
  told.top_k = std::max<int64_t>(0, options.get_int("top_k"));  // -1: vLLM's word for none
  told.min_p = options.get_float("min_p");
  told.repetition_penalty = options.get_float("repetition_penalty");
  told.stop_words = stop_words_from(options);
}

/// Where the distance to the reference is: in the loss, or in the rewards of answers. ms-swift's
/// and TRL's RLOO and REINFORCE++ have it there, Megatron-SWIFT's have not. Errors: UsageError
/// where there is no one reward.
void take_distance(const Options& options, Reinforcement& told) {
  const bool by_default =
      !is_of_megatron_swift(options) &&
      (told.advantage == Advantage::kLeaveOut || told.advantage == Advantage::kWhitened ||
       told.advantage == Advantage::kCentred);
  if (!options.get_bool_or("kl_in_reward", by_default)) return;
  if (told.scale == RewardScale::kEachRule) {
    throw UsageError(tr("[train] {}: gdpo has no one reward from which the distance is taken",
                        options.given_as("kl_in_reward")),
                     tr("--kl_in_reward false has it in the loss"));
  }
  told.reward_kl = std::exchange(told.loss.kl, 0);
}

/// One name, two estimators: ms-swift's, and verl's, which lines of MindSpeed's profile keep.
Advantage advantage_from(const Options& options) {
  const std::string name = options.get_string("advantage_estimator");
  if (name == "rloo") return Advantage::kLeaveOut;
  if (name == "reinforce_plus_plus")
    return is_of_mindspeed(options) ? Advantage::kWhitened : Advantage::kCentred;
  if (name == "reinforce_plus_plus_token") return Advantage::kWhitened;
  if (name == "reinforce_plus_plus_baseline") return Advantage::kBaselined;
  return Advantage::kGroup;
}

/// Errors: UsageError where the estimator divides by no deviation, or by none of a rule.
void require_scalable(const Options& options, const Reinforcement& told) {
  if (!told.scales_rewards() && options.has_value("scale_rewards")) {
    throw UsageError(
        tr("[train] {} {}: {} {} whitens over tokens, and divides by nothing else",
           options.given_as("scale_rewards"), options.get_string("scale_rewards"),
           options.given_as("advantage_estimator"), options.get_string("advantage_estimator")),
        tr("leave {} out, or take --advantage_estimator reinforce_plus_plus",
           options.given_as("scale_rewards")));
  }
  if (told.scale != RewardScale::kEachRule || told.advantage == Advantage::kGroup) return;
  throw UsageError(
      tr("[train] {} gdpo: {} {} does not scale rule by rule", options.given_as("scale_rewards"),
         options.given_as("advantage_estimator"), options.get_string("advantage_estimator")),
      tr("gdpo goes with --advantage_estimator grpo"));
}

/// Where nothing is said, as ms-swift has it; Megatron-SWIFT goes by no estimator.
RewardScale default_scale(const Options& options, Advantage advantage) {
  if (is_of_megatron_swift(options)) return RewardScale::kGroup;
  if (advantage == Advantage::kLeaveOut) return RewardScale::kNone;
  return advantage == Advantage::kCentred ? RewardScale::kBatch : RewardScale::kGroup;
}

RewardScale scale_from(const Options& options, Advantage advantage) {
  if (!options.has_value("scale_rewards")) return default_scale(options, advantage);
  const std::string name = options.get_string("scale_rewards");
  if (name == "batch") return RewardScale::kBatch;
  if (name == "gdpo") return RewardScale::kEachRule;
  return name == "none" || name == "false" ? RewardScale::kNone : RewardScale::kGroup;
}

std::vector<double> weights_from(const Options& options, size_t rewards) {
  std::vector<double> weights;
  for (const std::string& text : options.get_list("reward_weights")) {
    double weight = 0;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), weight);
    if (problem != std::errc() || end != text.data() + text.size() || !std::isfinite(weight)) {
      throw UsageError(tr("[train] {} {}: not a number", options.given_as("reward_weights"), text));
    }
    constexpr double kLargest = 1e6;
    if (std::abs(weight) > kLargest) {
      throw UsageError(tr("[train] {} {}: a weight is at most {:g}",
                          options.given_as("reward_weights"), text, kLargest));
    }
    weights.push_back(weight);
  }
  if (!weights.empty() && weights.size() != rewards) {
    throw UsageError(tr("[train] {}: {} weights of {} rewards", options.given_as("reward_weights"),
                        weights.size(), rewards));
  }
  return weights;
}

/// Directories of models and of adapters on one. reward_adapters names those of each model.
std::vector<fs::path> judges_from(const Options& options) {
  std::vector<fs::path> judges;
  for (const std::string& name : options.get_list("reward_model"))
    judges.push_back(locate_beside(name, options.given_as("reward_model")));
  const std::vector<std::string> adapters = options.get_list("reward_adapters");
  const std::string flag = options.given_as("reward_adapters");
  if (!adapters.empty() && adapters.size() != judges.size()) {
    throw UsageError(
        tr("[train] {}: adapters for {} of {} reward models", flag, adapters.size(), judges.size()),
        tr("each of --reward_model has its own there, in the same order"));
  }
  for (size_t i = 0; i < adapters.size(); ++i) {
    const fs::path of_model = locate_beside(adapters[i], flag);
    const ModelSource on = reward_model_at(of_model);
    std::error_code error;
    if (on.adapter.empty())
      throw UsageError(tr("[train] {} {}: no adapters", flag, of_model.string()),
                       tr("--reward_model names whole models"));
    if (!fs::equivalent(on.path, judges[i], error)) {
      throw UsageError(
          tr("[train] {} {}: trained on {}, not on {}", flag, of_model.string(), on.path.string(),
             judges[i].string()),
          tr("danlu merge --model {} --adapters {} --output DIR joins them all the same",
             judges[i].string(), of_model.string()));
    }
    judges[i] = of_model;
  }
  return judges;
}

}  // namespace

std::vector<std::string> stop_words_from(const Options& options) {
  std::vector<std::string> words = options.get_list("stop_words");
  for (const std::string& word : words) {
    if (!word.empty()) continue;
    throw UsageError(
        tr("{}: an empty word would end every answer", options.given_as("stop_words")));
  }
  return words;
}

namespace {

/// MindSpeed-LLM's number of each data set: 0: reward models alone judge its rows, 1: rules alone.
/// Errors: UsageError where that is not so by the judges that are named.
void check_categories(const Options& options, const Reinforcement& told) {
  for (const std::string& category : options.get_list("dataset_category")) {
    if (category != "0" && category != "1") {
      throw UsageError(tr("[train] {}: 0 or 1 for each data set, got {}",
                          options.given_as("dataset_category"), category));
    }
    const bool is_so = category == "0" ? told.rewards.empty() : told.reward_models.empty();
    if (is_so) continue;
    throw UsageError(
        tr("[train] {}: rules and reward models judge the rows of every data set",
           options.given_as("dataset_category")),
        tr("leave it out: a rule gives nothing for a row that has no right answer, which reward "
           "models then judge alone; --reward_weights weighs rules and models"));
  }
}

/// Errors: UsageError where there are turns and nothing that makes them.
void take_environment(const Options& options, Reinforcement& told) {
  constexpr int64_t kTurns = 8;
  told.environment = options.get_string_or("environment", "");
  if (told.environment.empty()) {
    if (options.get_int_or("max_turns", 1) == 1) return;
    throw UsageError(tr("[train] {} {}: nothing answers the model's answers",
                        options.given_as("max_turns"), options.get_int("max_turns")),
                     tr("--environment program:COMMAND does"));
  }
  told.max_turns = options.get_int_or("max_turns", kTurns);
  told.environment_timeout_s = options.get_float("environment_timeout");
}

/// "environment" is what a program gives, and the only reward where none is named.
void take_reward_of_environment(const Options& options, Reinforcement& told) {
  const bool is_program = told.environment.starts_with("program:");
  if (is_program && told.rewards.empty() && told.reward_models.empty())
    told.rewards = {kEnvironmentReward};
  const bool is_named =
      std::count(told.rewards.begin(), told.rewards.end(), kEnvironmentReward) > 0;
  if (!is_named || is_program) return;
  throw UsageError(tr("[train] {} {}: no program gives one", options.given_as("reward_funcs"),
                      kEnvironmentReward),
                   tr("--environment program:COMMAND does"));
}

/// Errors: UsageError where answers of several turns have no place.
void check_environment(const Options& options, const Reinforcement& told) {
  if (told.environment.empty()) return;
  const std::string flag = options.given_as("environment");
  if (told.has_critic()) {
    throw UsageError(tr("[train] {}: a critic judges the tokens of single answers", flag),
                     tr("--rlhf_type grpo learns from conversations"));
  }
  if (told.parts > 1) {
    throw UsageError(tr("[train] {} and {}: a conversation is drawn in one rollout", flag,
                        options.given_as("partial_rollout_max_split")),
                     tr("leave one of them out"));
  }
}

}  // namespace

void take_rewards(const Options& options, Reinforcement& told) {
  take_environment(options, told);
  told.rewards = options.get_list("reward_funcs");
  told.reward_models = judges_from(options);
  take_reward_of_environment(options, told);
  if (told.rewards.empty() && told.reward_models.empty()) {
    throw UsageError(tr("[train] nothing judges the answers: --reward_funcs names no reward"),
                     tr("--reward_funcs accuracy, \"program:COMMAND\" or --reward_model DIR; "
                        "docs/reinforcement.md lists them"));
  }
  check_categories(options, told);
  told.reward_weights = weights_from(options, told.rewards.size() + told.reward_models.size());
  told.reference_column = options.get_string_or("reward_column", "");
  told.cosine_length = options.get_int_or("cosine_max_len", 0);
  told.cosine_short_wrong = options.get_float("cosine_min_len_value_wrong");
  told.cosine_long_wrong = options.get_float("cosine_max_len_value_wrong");
  told.cosine_short_right = options.get_float("cosine_min_len_value_correct");
  told.cosine_long_right = options.get_float("cosine_max_len_value_correct");
  told.repetition_words = options.get_int("repetition_n_grams");
  told.repetition_penalty_of_reward = options.get_float("repetition_max_penalty");
  told.overlong_length = options.get_int_or("soft_max_length", 0);
  told.overlong_buffer = options.get_int_or("soft_cache_length", 0);
  told.reward_timeout_s = options.get_float("reward_timeout");
  told.allows_code = options.get_bool("allow_code_execution");
  told.python = options.get_string("python");
}

std::vector<std::string> reinforcement_flags(const std::string& name) {
  std::vector<std::string> own = {
      "loss_type",           "beta",           "importance_sampling_level",
      "advantage_estimator", "tau_pos",        "tau_neg",
      "scale_rewards",       "dynamic_sample", "max_resample_times",
      "kl_in_reward"};
  if (name == "ppo") {
    own = {"critic_model", "critic_lr",           "gamma",          "lam",       "cliprange_value",
           "vf_coef",      "missing_eos_penalty", "whiten_rewards", "ppo_target"};
  }
  const std::vector<std::string> shared = {"kl_beta",
                                           "ref_model",
                                           "ref_model_iteration",
                                           "ref_adapters",
                                           "epsilon",
                                           "epsilon_high",
                                           "delta",
                                           "do_sample",
                                           "temperature",
                                           "max_completion_length",
                                           "partial_rollout_max_split",
                                           "environment",
                                           "environment_timeout",
                                           "max_turns",
                                           "reward_funcs",
                                           "reward_model",
                                           "reward_adapters",
                                           "reward_weights",
                                           "reward_column",
                                           "dataset_category",
                                           "num_generations",
                                           "num_iterations",
                                           "num_mini_batches",
                                           "steps_per_generation",
                                           "generation_batch_size",
                                           "top_p",
                                           "top_k",
                                           "min_p",
                                           "stop_words",
                                           "repetition_penalty",
                                           "overlong_filter",
                                           "max_kl",
                                           "log_completions",
                                           "cosine_max_len",
                                           "cosine_min_len_value_wrong",
                                           "cosine_max_len_value_wrong",
                                           "cosine_min_len_value_correct",
                                           "cosine_max_len_value_correct",
                                           "repetition_n_grams",
                                           "repetition_max_penalty",
                                           "soft_max_length",
                                           "soft_cache_length",
                                           "reward_timeout",
                                           "allow_code_execution",
                                           "python"};
  own.insert(own.end(), shared.begin(), shared.end());
  return own;
}

Reinforcement drawing_from(const Options& options) {
  Reinforcement told;
  told.answers = 1;
  told.loss.kl = 0;
  told.loss.temperature = options.get_float("temperature");
  told.max_new_tokens = options.get_int("max_completion_length");
  take_sampling(options, told);
  return told;
}

Reinforcement reinforcement_from(const std::string& name, const Options& options) {
  Reinforcement told;
  const bool has_critic = name == "ppo";
  take_clipping(options, told.loss);
  take_rewards(options, told);
  if (has_critic) {
    told.loss.mean = LossMean::kTokens;
    told.advantage = Advantage::kCritic;
    take_critic(options, told.critic);
  } else {
    take_loss(options, told.loss);
    told.advantage = advantage_from(options);
    told.scale = scale_from(options, told.advantage);
    require_scalable(options, told);
    take_distance(options, told);
  }
  told.answers = options.get_int_or("num_generations", has_critic ? 1 : 8);
  if (!has_critic) {
    require_others(options, told);
    take_resampling(options, told);
  }
  const bool learns_again = has_critic && !is_of_mindspeed(options);
  told.iterations = options.get_int_or("num_iterations", learns_again ? 4 : 1);
  take_rollout_size(options, told);
  told.max_new_tokens = options.get_int("max_completion_length");
  take_parts(options, told);
  check_environment(options, told);
  take_sampling(options, told);
  told.masks_truncated = options.get_bool("overlong_filter");
  told.max_kl = options.get_float("max_kl");
  if (told.max_kl > 0 && !told.has_reference()) {
    throw UsageError(
        tr("[train] {} {:g}: there is no reference from which a distance is measured",
           options.given_as("max_kl"), told.max_kl),
        has_critic ? tr("--kl_coef above 0 keeps one") : tr("--beta above 0 keeps one"));
  }
  told.logs_completions = options.get_bool("log_completions");
  return told;
}

}  // namespace danlu::settings
