#include "settings/options/objective_options.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/lower_case.h"
#include "base/option_text.h"
#include "settings/model_source.h"
#include "settings/options/data_options.h"
#include "settings/options/embedding_options.h"
#include "settings/options/loss_scale.h"
#include "settings/options/model_names.h"
#include "settings/options/preference_options.h"
#include "settings/options/reinforcement_options.h"
#include "text/template_record.h"
#include "weights/megatron/place.h"

namespace danlu::settings {
namespace {

/// What --task_type trains beside answers; "": answers.
std::string judging_task(const Options& options) {
  const std::string task = lower_case(options.get_string_or("task_type", "causal_lm"));
  return task == "causal_lm" ? "" : task;
}

/// The objective by the name that all systems have for it, and what named it.
struct NamedObjective {
  std::string name;
  std::string option;
};

NamedObjective name_of_objective(const std::string& verb, const Options& options) {
  const bool is_swift = verb == "rlhf";
  if (is_swift && options.is_given("stage")) {
    throw UsageError(
        tr("[train] {} beside danlu rlhf", options.given_as("stage")),
        tr("danlu rlhf goes by --rlhf_type, danlu posttrain and danlu train by --stage"));
  }
  if (!is_swift && options.is_given("rlhf_type")) {
    throw UsageError(tr("[train] {}: of danlu rlhf alone", options.given_as("rlhf_type")),
                     tr("danlu {} goes by --stage", verb));
  }
  std::string name =
      is_swift ? options.get_string_or("rlhf_type", "dpo") : options.get_string_or("stage", "sft");
  if (const std::string task = judging_task(options); !task.empty()) {
    // ms-swift's lines of reward models may say so too: their head is one of a classifier.
    const bool is_judge = task == "seq_cls" && (name == "rm" || name == "orm");
    if (verb == "pretrain" && !options.is_given("stage")) name = "pretrain";
    if (!is_judge && name != "sft") {
      throw UsageError(tr("[train] {} {} beside {} {}", options.given_as("task_type"), task,
                          options.given_as(is_swift ? "rlhf_type" : "stage"), name),
                       task == "embedding"
                           ? tr("danlu sft --task_type embedding trains vectors of texts")
                           : tr("--rlhf_type rm (--stage rm) trains a reward model on pairs, danlu "
                                "sft --task_type seq_cls a classifier on labels"));
    }
    if (!is_judge) return {task, "task_type"};
  }
  const std::string loss = loss_type_of(options, "");
  // LLaMA-Factory's dpo stage has these as losses.
  if (name == "dpo" && (loss == "simpo" || loss == "orpo")) name = loss;
  if (name == "trl_ppo") name = "ppo";  // MindSpeed-LLM's word
  return {name, is_swift ? "rlhf_type" : "stage"};
}

std::filesystem::path reference_at(const Options& options) {
  const std::filesystem::path named =
      locate_beside(options.get_string("ref_model"), options.given_as("ref_model"));
  const std::string iteration = options.get_string_or("ref_model_iteration", "");
  if (iteration.empty()) return named;
  if (weights::megatron::is_megatron_directory(named))
    return weights::megatron::find_checkpoint(named, iteration).directory;
  log::notice("{} has no effect: {} has no iterations", options.given_as("ref_model_iteration"),
              named.string());
  return named;
}

/// ms-swift's lines name the adapters twice that a training begins with. Errors: UsageError where
/// they are others, or another model's.
void check_reference_adapters(const Options& options, const ObjectiveConfig& config) {
  if (!options.has_value("ref_adapters") || !config.has_reference()) return;
  const std::string named = options.get_string("ref_adapters");
  if (options.has_value("ref_model")) {
    throw UsageError(
        tr("[train] {} beside {}: a reference with weights of its own is taken as it is, without "
           "adapters",
           options.given_as("ref_adapters"), options.given_as("ref_model")),
        tr("danlu merge joins them with the reference; leave {} out where the training's own model "
           "is meant",
           options.given_as("ref_model")));
  }
  if (options.get_string_or("adapters", "") == named) return;
  throw UsageError(tr("[train] {} {}: adapters of a reference are those that the training begins "
                      "with",
                      options.given_as("ref_adapters"), named),
                   tr("--adapters names them; danlu merge joins others with their model, for "
                      "--ref_model"));
}

/// As ms-swift without its --ref_adapters and LLaMA-Factory have it: adapters that go on are left
/// out of the reference.
bool takes_base_as_reference(const Options& options, const ObjectiveConfig& config) {
  const std::string& system = options.profile().name;
  const bool is_theirs = is_of_swift(system) || system == "llamafactory";
  return is_theirs && config.has_reference() && config.reference.empty() &&
         options.has_value("adapters") && !options.has_value("ref_adapters");
}

/// ms-swift and LLaMA-Factory call it one way, MindSpeed-LLM the other (of outcomes, not steps).
/// Errors: UsageError where there is no reference, or none of its answers is known beforehand.
void take_precomputing(const Options& options, ObjectiveConfig& config) {
  if (!options.get_bool("precompute_ref_log_probs")) return;
  const std::string flag = options.given_as("precompute_ref_log_probs");
  if (config.kind == ObjectiveKind::kDistillation) {
    throw UsageError(tr("[train] {}: a teacher's distributions are too large to be kept, and it is "
                        "held in the training",
                        flag),
                     tr("leave it out"));
  }
  if (config.draws()) {
    throw UsageError(
        tr("[train] {}: the answers of {} are drawn in the run, and not known before it", flag,
           config.name));
  }
  if (!config.has_reference())
    throw UsageError(tr("[train] {}: {} has no reference", flag, config.name));
  config.precomputes_reference = true;
}

template <PreferenceConfig (*From)(const Options&, const std::string& loss)>
void take_preference(const Options& options, ObjectiveConfig& config) {
  config.kind = ObjectiveKind::kPreference;
  config.preference = From(options, loss_type_of(options, "sigmoid"));
  take_smoothing(options, config.preference);
}

void take_unpaired(const Options& options, ObjectiveConfig& config) {
  config.kind = ObjectiveKind::kUnpaired;
  config.unpaired = kto_from(options);
}

void take_reward(const Options& options, ObjectiveConfig& config) {
  config.kind = ObjectiveKind::kReward;
  config.reward.centring = options.get_float_or("center_rewards_coefficient", 0);
}

void take_classes(const Options& options, ObjectiveConfig& config) {
  config.kind = ObjectiveKind::kClasses;
  config.classes.labels = options.get_int_or("num_labels", 0);
  if (options.has_value("problem_type"))
    config.classes.problem =
        arch::label_problem_from_name(lower_case(options.get_string("problem_type"))).value();
}

void take_ranking(const Options& options, ObjectiveConfig& config) {
  config.kind = ObjectiveKind::kRanking;
  const std::string loss = loss_type_of(options, "pointwise_reranker");
  if (loss != "pointwise_reranker" && loss != "listwise_reranker")
    refuse_loss(options, config.name, loss, "pointwise_reranker, listwise_reranker");
  config.ranking = {
      .loss = loss == "listwise_reranker" ? RankingLoss::kListwise : RankingLoss::kPointwise,
      .by_tokens = config.name == "generative_reranker",
      .tokens = ranking_tokens_from(options),
      .temperature = options.get_float("listwise_reranker_temperature"),
      .least_texts = options.get_int("listwise_reranker_min_group_size"),
      .most_positives = options.get_int("max_positive_samples"),
      .most_negatives = options.get_int("max_negative_samples")};
  if (config.ranking.loss == RankingLoss::kListwise && config.ranking.most_negatives == 0)
    throw UsageError(tr("[train] {} 0: listwise_reranker tells a document from others of its row",
                        options.given_as("max_negative_samples")),
                     tr("give at least 1, or --loss_type pointwise_reranker"));
}

std::vector<std::string> ranking_flags(bool by_tokens) {
  std::vector<std::string> flags = {"loss_type", "listwise_reranker_temperature",
                                    "listwise_reranker_min_group_size", "max_positive_samples",
                                    "max_negative_samples"};
  if (by_tokens)
    for (const OptionSpec& spec : ranking_token_options("")) flags.push_back(spec.name);
  return flags;
}

void take_process_reward(const Options& options, ObjectiveConfig& config) {
  config.kind = ObjectiveKind::kProcessReward;
  config.process.placeholder = options.get_string("placeholder_token");
  config.process.reward_tokens = options.get_list("reward_tokens");
  config.process.has_classes = options.get_string("step_head") == "class";
  if (config.process.has_classes && config.process.reward_tokens.size() != 2) {
    throw UsageError(
        tr("[train] {} class: --reward_tokens names two, of right steps and of wrong ones",
           options.given_as("step_head")));
  }
}

/// That of gkd; without a flag the middle, as in ms-swift and TRL.
double divergence_beta_from(const Options& options) {
  if (!options.is_given("beta")) return 0.5;
  const double beta = options.get_float("beta");
  if (beta <= 1) return beta;
  throw UsageError(tr("[train] {} {}: of gkd it is between 0 (forward KL) and 1 (reverse KL)",
                      options.given_as("beta"), beta));
}

/// The temperature of the loss and of on-policy answers; where neither the line nor a profile says
/// one, ms-swift's and TRL's.
double gkd_temperature_from(const Options& options) {
  return options.is_set("temperature") ? options.get_float("temperature")
                                       : DistillationConfig().temperature;
}

void take_distillation(const Options& options, ObjectiveConfig& config) {
  config.kind = ObjectiveKind::kDistillation;
  if (!options.has_value("teacher_model")) {
    throw UsageError(tr("[train] gkd without a teacher: --teacher_model names none"),
                     tr("--teacher_model DIR: a model with the same tokenizer"));
  }
  config.reference =
      locate_beside(options.get_string("teacher_model"), options.given_as("teacher_model"));
  config.distillation = {.beta = divergence_beta_from(options),
                         .temperature = gkd_temperature_from(options),
                         .topk = options.get_int_or("gkd_logits_topk", 0),
                         .sft_alpha = options.get_float("sft_alpha"),
                         .lmbda = options.get_float("lmbda")};
  config.policy = drawing_from(options);
  config.policy.loss.temperature = config.distillation.temperature;
}

void take_policy(const Options& options, ObjectiveConfig& config) {
  config.kind = ObjectiveKind::kPolicy;
  config.policy = reinforcement_from(config.name, options);
}

/// An objective other than the tokens of the data.
struct Method {
  std::string name;
  std::vector<std::string> flags;  ///< that it reads
  void (*take)(const Options& options, ObjectiveConfig& config);

  bool takes_reference() const {
    return std::find(flags.begin(), flags.end(), "ref_model") != flags.end();
  }
};

const std::vector<Method>& methods() {
  static const std::vector<Method> kMethods{
      {"dpo",
       {"loss_type", "beta", "label_smoothing", "rpo_alpha", "pref_ftx", "ref_model",
        "ref_model_iteration", "ref_adapters", "precompute_ref_log_probs"},
       &take_preference<&dpo_from>},
      {"simpo",
       {"loss_type", "beta", "simpo_beta", "simpo_gamma", "gamma_beta_ratio", "label_smoothing",
        "cpo_alpha", "rpo_alpha", "pref_ftx"},
       &take_preference<&simpo_from>},
      {"cpo",
       {"loss_type", "beta", "label_smoothing", "cpo_alpha", "pref_ftx"},
       &take_preference<&cpo_from>},
      {"orpo", {"loss_type", "beta", "pref_ftx"}, &take_preference<&orpo_from>},
      {"kto",
       {"loss_type", "beta", "calculate_kl", "desirable_weight", "undesirable_weight", "pref_ftx",
        "ref_model", "ref_model_iteration", "ref_adapters", "precompute_ref_log_probs"},
       &take_unpaired},
      {"rm", {"center_rewards_coefficient"}, &take_reward},
      {"orm", {"center_rewards_coefficient"}, &take_reward},
      {"seq_cls", {"num_labels", "problem_type"}, &take_classes},
      {"embedding",
       {"loss_type", "infonce_temperature", "infonce_use_batch", "infonce_hard_negatives",
        "infonce_mask_fake_negative", "infonce_fake_neg_margin", "infonce_include_qq",
        "infonce_include_dd", "mrl_dims"},
       &take_embedding},
      {"reranker", ranking_flags(/*by_tokens=*/false), &take_ranking},
      {"generative_reranker", ranking_flags(/*by_tokens=*/true), &take_ranking},
      {"prm", {"placeholder_token", "reward_tokens", "step_head"}, &take_process_reward},
      {"gkd",
       {"teacher_model", "beta", "temperature", "lmbda", "sft_alpha", "gkd_logits_topk",
        "max_completion_length", "top_p", "top_k", "min_p", "stop_words", "repetition_penalty"},
       &take_distillation},
      {"grpo", reinforcement_flags("grpo"), &take_policy},
      {"ppo", reinforcement_flags("ppo"), &take_policy},
  };
  return kMethods;
}

/// Null: the tokens of the data are learnt.
const Method* method_named(const std::string& name) {
  for (const Method& method : methods())
    if (method.name == name) return &method;
  return nullptr;
}

/// ms-swift's lines have a teacher's log-probabilities as rewards of tokens. Errors: UsageError.
void refuse_rewarding_teacher(const Options& options, const Method& method) {
  if (method.take != &take_policy || !options.is_given("teacher_model")) return;
  throw UsageError(
      tr("[train] {}: {} learns from rewards, and none comes from a teacher",
         options.given_as("teacher_model"), method.name),
      tr("--rlhf_type gkd --lmbda 1 --beta 1 learns a teacher's distributions over answers of the "
         "model's own"));
}

}  // namespace

namespace {

/// What tokens count, where nothing but the next one is learnt. Errors: UsageError.
void take_token_weights(const Options& options, const Method* method, ObjectiveConfig& config) {
  std::vector<const char*> asked;
  for (const char* flag : {"enable_dft_loss", "use_eaft_loss", "use_asft_loss"})
    if (options.get_bool(flag)) asked.push_back(flag);
  if (asked.empty()) return;
  if (method)
    throw UsageError(
        tr("[train] {}: {} has no such loss", options.given_as(asked[0]), method->name),
        tr("danlu sft has it"));
  if (asked.size() > 1)
    throw UsageError(tr("[train] {} and {} are two losses", options.given_as(asked[0]),
                        options.given_as(asked[1])),
                     tr("give one of them"));
  if (options.get_bool("use_eaft_loss")) {
    config.entropy_power = options.get_float("eaft_alpha");
    return;
  }
  config.weighs_by_probability = true;
  if (!options.get_bool("use_asft_loss")) return;
  config.anchor_weight = options.get_float("asft_alpha");
  if (options.has_value("ref_model")) config.reference = reference_at(options);
}

}  // namespace

ObjectiveConfig objective_from(const std::string& verb, const Options& options) {
  ObjectiveConfig config;
  const Method* const method = method_named(name_of_objective(verb, options).name);
  take_token_weights(options, method, config);
  if (!method) return config;
  refuse_rewarding_teacher(options, *method);
  config.name = method->name;
  method->take(options, config);
  const bool is_of_sft = config.kind == ObjectiveKind::kClasses ||
                         config.kind == ObjectiveKind::kEmbedding ||
                         config.kind == ObjectiveKind::kRanking;
  if (!is_of_sft) config.drops = !options.get_bool("disable_dropout");
  if (method->takes_reference()) {
    if (options.has_value("ref_model")) config.reference = reference_at(options);
    check_reference_adapters(options, config);
    config.base_is_reference = takes_base_as_reference(options, config);
  }
  take_precomputing(options, config);
  return config;
}

bool learns_all_rounds(const Options& options, const ObjectiveConfig& objective,
                       const text::TrainedPart& learnt) {
  const bool is_compared =
      objective.kind == ObjectiveKind::kPreference || objective.kind == ObjectiveKind::kUnpaired;
  if (!is_compared || learnt.base != text::TrainedPart::Base::kDefault) return false;
  const std::string& system = options.profile().name;
  const bool is_said = options.is_given("loss_scale") && names_learnt_part(options);
  return is_said ||
         (objective.name == "orpo" && (system == "swift3" || system == "megatron-swift"));
}

bool averages_micro_batches(const Options& options, Task task, const ObjectiveConfig& objective) {
  if (options.get_string("loss_average") != "micro_batches") return false;
  const bool is_given = options.is_given("loss_average");
  const bool by_targets = options.get_bool_or("calculate_per_token_loss", false);
  if (is_given && by_targets)
    throw UsageError(tr("[train] {} micro_batches: {} asks for the mean over targets; give one",
                        options.given_as("loss_average"),
                        options.given_as("calculate_per_token_loss")));
  if (is_given && objective.weighs_tokens()) {
    const char* const flag = objective.entropy_power       ? "use_eaft_loss"
                             : objective.anchor_weight > 0 ? "use_asft_loss"
                                                           : "enable_dft_loss";
    throw UsageError(tr("[train] {} micro_batches: beside {} the mean is over targets",
                        options.given_as("loss_average"), options.given_as(flag)));
  }
  return task == Task::kSft && objective.kind == ObjectiveKind::kLanguage && !by_targets &&
         !objective.weighs_tokens();
}

text::TrainedPart learnt_of(const Options& options, const ObjectiveConfig& objective) {
  const text::TrainedPart said = learnt_from(options);
  if (objective.kind != ObjectiveKind::kDistillation) return said;
  const bool by_switch =
      options.get_bool_or("train_on_prompt", false) || options.get_bool_or("mask_history", false);
  const bool is_said = by_switch || names_learnt_part(options);
  const text::TrainedPart learnt =
      is_said ? said : text::trained_part_from_name("last_round", "last_round");
  if (!objective.draws()) return learnt;
  const std::string flag =
      options.given_as(names_learnt_part(options) ? "loss_scale" : "train_on_prompt");
  const std::string hint = tr("--lmbda 0 learns from the answers of the rows");
  if (learnt.base == text::TrainedPart::Base::kAll) {
    throw UsageError(
        tr("[train] {}: the model answers what stands before the part that is learnt, and "
           "here all of a row is",
           flag),
        hint);
  }
  if (!learnt.empty_thoughts) {
    throw UsageError(tr("[train] {}: empty thoughts would stand in the prompts that the model "
                        "answers",
                        flag),
                     hint);
  }
  return learnt;
}

std::optional<arch::ScoreHead> score_from(const Options& options,
                                          const ObjectiveConfig& objective) {
  const bool judges_steps =
      objective.kind == ObjectiveKind::kProcessReward && objective.process.has_classes;
  const bool sorts = objective.kind == ObjectiveKind::kClasses;
  const bool ranks = objective.kind == ObjectiveKind::kRanking && !objective.ranking.by_tokens;
  if (objective.kind != ObjectiveKind::kReward && !judges_steps && !sorts && !ranks)
    return std::nullopt;
  arch::ScoreHead head;
  if (sorts) {
    head.problem = objective.classes.problem;
    head.labels = objective.classes.labels;
  }
  if (options.profile().name == "llamafactory" && !sorts && !ranks)
    head.form = arch::ScoreForm::kBeside;
  if (judges_steps) {
    head.form = arch::ScoreForm::kTokens;
    head.labels = 2;
  }
  head.seed = static_cast<uint64_t>(options.get_int("seed"));
  return head;
}

namespace {

/// Whether a model was trained to rank, without a template.
bool ranked_plainly(const std::filesystem::path& model) {
  if (model.empty() || !std::filesystem::is_directory(model)) return false;
  const Json record = text::read_record(model);
  return text::recorded_text(record, "task_type").ends_with("reranker") &&
         !json_get<bool>(record, "use_chat_template").value_or(true);
}

}  // namespace

bool uses_template(const Options& options, Task task, const ObjectiveConfig& objective,
                   const std::filesystem::path& model) {
  const bool embeds = objective.kind == ObjectiveKind::kEmbedding;
  if (embeds && options.get_string("template") == text::kPlainTexts) return false;
  const bool is_silent = !options.is_set("use_chat_template") && !options.is_given("template");
  if (embeds && is_silent) return embeds_by_template(model);
  if (objective.kind == ObjectiveKind::kRanking && is_silent && ranked_plainly(model)) return false;
  if (task == Task::kPretrain) return !has_texts_as_samples(options, task);
  if (options.get_bool("use_chat_template")) return true;
  const std::string flag = option_text::given_switch(options, "use_chat_template");
  if (objective.kind != ObjectiveKind::kClasses && objective.kind != ObjectiveKind::kRanking &&
      !embeds) {
    throw UsageError(tr("[train] {}: answers are learnt as a template writes them", flag),
                     tr("--template empty writes messages as they stand; danlu pretrain reads "
                        "plain texts"));
  }
  if (options.is_given("template")) {
    throw UsageError(tr("[train] {} beside {}", flag, options.given_as("template")),
                     tr("give one of them"));
  }
  return false;
}

std::vector<const char*> flags_without_use(const ObjectiveConfig& objective) {
  const Method* const used = method_named(objective.name);
  std::vector<const char*> idle;
  for (const Method& method : methods()) {
    for (const std::string& flag : method.flags) {
      const bool is_read =
          used && std::find(used->flags.begin(), used->flags.end(), flag) != used->flags.end();
      const bool is_there =
          std::any_of(idle.begin(), idle.end(), [&](const char* other) { return flag == other; });
      const bool is_anchored = objective.anchor_weight > 0 && flag == "ref_model";
      if (!is_read && !is_there && !is_anchored) idle.push_back(flag.c_str());
    }
  }
  if (!objective.entropy_power) idle.push_back("eaft_alpha");
  if (objective.kind != ObjectiveKind::kLanguage || objective.anchor_weight == 0)
    idle.push_back("asft_alpha");
  if (objective.kind == ObjectiveKind::kDistillation && !objective.draws()) {
    idle.insert(idle.end(), {"max_completion_length", "top_p", "top_k", "min_p", "stop_words",
                             "repetition_penalty"});
  }
  if (objective.kind == ObjectiveKind::kEmbedding && objective.embedding.has_pairs()) {
    for (const std::string& flag : used->flags)
      if (flag.starts_with("infonce_")) idle.push_back(flag.c_str());
  }
  if (used && used->takes_reference() && !objective.has_reference())
    idle.insert(idle.end(), {"ref_model", "ref_adapters"});
  return idle;
}

void check_judges(const TrainConfig& config) {
  const Reinforcement& told = config.objective.policy;
  for (const std::filesystem::path& judge : told.reward_models)
    (void)open_model(reward_model_at(judge));
  const bool has_own = !told.critic.model.empty();
  if (!told.has_critic() || config.tuner == Tuner::kLora) return;
  if (!has_own && told.reward_models.empty()) return;
  const std::filesystem::path begins_as = has_own ? told.critic.model : told.reward_models.front();
  if (reward_model_at(begins_as).adapter.empty()) return;
  const std::string name = begins_as.string();
  throw UsageError(
      tr("[train] {} {}: adapters, and with {} the critic begins as a whole model",
         config.flag(has_own ? "critic_model" : "reward_model"), name,
         config.said("tuner", tuner_name(config.tuner))),
      tr("danlu merge --adapters {} --output DIR joins them with their base; --tuner lora takes "
         "them as they are",
         name));
}

void check_reference(const Options& options, const ObjectiveConfig& objective,
                     const arch::ModelConfig& model) {
  // A teacher may have rows for other tokens too: what both know is compared.
  if (objective.reference.empty() || objective.kind == ObjectiveKind::kDistillation) return;
  ModelSource source;
  source.path = objective.reference;
  const arch::ModelConfig reference = open_model(source).config;
  if (reference.vocab_size == model.vocab_size) return;
  throw ModelError(tr("[train] {} {}: a vocabulary of {} tokens, the model's has {}",
                      options.given_as("ref_model"), objective.reference.string(),
                      reference.vocab_size, model.vocab_size),
                   tr("a reference judges the same tokens: take one of the same family"));
}

}  // namespace danlu::settings
