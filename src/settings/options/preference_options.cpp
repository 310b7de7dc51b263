#include "settings/options/preference_options.h"

#include "base/error.h"
#include "base/log.h"
#include "base/lower_case.h"
#include "base/option_text.h"
#include "settings/options/idle_flags.h"

namespace danlu::settings {

std::string loss_type_of(const Options& options, const std::string& fallback) {
  return lower_case(options.get_string_or("loss_type", fallback));
}

[[noreturn]] void refuse_loss(const Options& options, const std::string& method,
                              const std::string& loss, const std::string& known) {
  const std::string has = tr("it has {}", known);
  const bool means_kto = method != "kto" && loss.starts_with("kto"),
             means_simpo = method == "cpo" && loss == "simpo";
  throw UsageError(
      tr("[train] {} {}: {} has no such loss", options.given_as("loss_type"), loss, method),
      means_simpo ? has + "; " + tr("--rlhf_type simpo is that objective")
      : means_kto ? has + "; " +
                        tr("kto is an objective of its own (stage: kto, --rlhf_type kto), "
                           "whose rows are answers that were liked or not")
                  : has);
}

namespace {

/// Before 3.8 ms-swift had this term of dpo unless the line said otherwise, and its flags were the
/// same.
void say_older_likelihood(const Options& options) {
  const std::string tuner = option_text::normalise_name(options.given_as("tuner"));
  const bool may_be_older = is_of_swift(options.profile().name) && tuner.ends_with("train_type");
  if (!may_be_older || options.is_given("rpo_alpha")) return;
  say_always(
      tr("{}: in ms-swift 3.0 to 3.7 dpo had the term of --rpo_alpha 1 where nothing is said, "
         "since 3.8 it has none, as here",
         options.given_as("tuner")));
}

/// By LLaMA-Factory's and MindSpeed-LLM's flag, or by that of TRL and ms-swift, whose profile says
/// something of dpo alone.
void take_likelihood(const Options& options, bool is_dpo, PreferenceConfig& config) {
  const double of_means = options.get_float_or("pref_ftx", 0);
  const bool is_said = options.is_given("rpo_alpha");
  const double of_tokens =
      is_said || (is_dpo && of_means == 0) ? options.get_float_or("rpo_alpha", 0) : 0;
  if (of_tokens > 0 && of_means > 0) {
    throw UsageError(tr("[train] {} and {} are one term in two forms",
                        options.given_as("rpo_alpha"), options.given_as("pref_ftx")),
                     tr("give one of them"));
  }
  if (of_tokens > 0) {
    config.likelihood = LikelihoodTerm::kAnswerTokens;
    config.likelihood_weight = of_tokens;
  } else if (of_means > 0) {
    config.likelihood = LikelihoodTerm::kAnswerMeans;
    config.likelihood_weight = of_means;
  }
}

/// Errors: UsageError where LLaMA-Factory would add a term that `method` has not.
void refuse_term(const Options& options, const std::string& method) {
  if (options.get_float_or("pref_ftx", 0) == 0) return;
  throw UsageError(tr("[train] {} {}: {} has no such term", options.given_as("pref_ftx"),
                      options.get_float("pref_ftx"), method),
                   tr("leave it out; dpo and simpo have it, and orpo in LLaMA-Factory's lines"));
}

/// For GRPO, beta 0 means no reference; for preferences it would remove the loss.
double beta_of(const Options& options) {
  const double beta = options.get_float("beta");
  if (beta > 0) return beta;
  throw UsageError(
      tr("[train] {}: preferences need a number above 0, got {}", options.given_as("beta"), beta));
}

}  // namespace

PreferenceConfig dpo_from(const Options& options, const std::string& loss) {
  PreferenceConfig config;
  config.beta = beta_of(options);
  config.robust = loss == "robust";
  if (loss == "hinge") {
    config.loss = PairLoss::kHinge;
  } else if (loss == "ipo") {
    config.loss = PairLoss::kSquare;
    config.averages = true;
  } else if (loss != "sigmoid" && !config.robust) {
    refuse_loss(options, "dpo", loss, "sigmoid, hinge, ipo, robust, simpo, orpo");
  }
  take_likelihood(options, /*is_dpo=*/true, config);
  say_older_likelihood(options);
  return config;
}

PreferenceConfig simpo_from(const Options& options, const std::string& loss) {
  PreferenceConfig config;
  config.has_reference = false;
  config.averages = true;
  if (loss == "hinge") {
    config.loss = PairLoss::kHinge;
  } else if (loss != "sigmoid" && loss != "simpo") {
    refuse_loss(options, "simpo", loss, "sigmoid, hinge");
  }
  config.beta = options.is_given("beta") ? beta_of(options) : options.get_float("simpo_beta");
  const bool by_ratio = options.has_value("gamma_beta_ratio") && !options.is_given("simpo_gamma");
  config.gamma = by_ratio ? options.get_float("gamma_beta_ratio") * config.beta
                          : options.get_float("simpo_gamma");
  take_likelihood(options, /*is_dpo=*/false, config);
  const double alpha = options.get_float_or("cpo_alpha", 0);
  if (alpha > 0 && config.likelihood == LikelihoodTerm::kNone) {
    config.likelihood = LikelihoodTerm::kAnswerTokens;
    config.likelihood_weight = alpha;
  }
  return config;
}

PreferenceConfig cpo_from(const Options& options, const std::string& loss) {
  PreferenceConfig config;
  config.has_reference = false;
  if (loss == "hinge") {
    config.loss = PairLoss::kHinge;
  } else if (loss != "sigmoid") {
    refuse_loss(options, "cpo", loss, "sigmoid, hinge");
  }
  config.beta = beta_of(options);
  refuse_term(options, "cpo");
  config.likelihood_weight = options.get_float_or("cpo_alpha", 1);
  if (config.likelihood_weight > 0) config.likelihood = LikelihoodTerm::kAnswerTokens;
  return config;
}

PreferenceConfig orpo_from(const Options& options, const std::string& loss) {
  if (loss != "orpo" && loss != "sigmoid") refuse_loss(options, "orpo", loss, "orpo");
  PreferenceConfig config;
  config.loss = PairLoss::kOdds;
  config.has_reference = false;
  config.averages = true;
  config.beta = beta_of(options);
  // TRL keeps the prompt likely, too.
  const std::string& system = options.profile().name;
  config.likelihood = system == "llamafactory" ? LikelihoodTerm::kAnswerMeans
                      : is_of_swift(system)    ? LikelihoodTerm::kAnswerTokens
                                               : LikelihoodTerm::kAllTokens;
  // LLaMA-Factory adds its term to each of its losses: here it is the one that is there.
  if (config.likelihood != LikelihoodTerm::kAnswerMeans) refuse_term(options, "orpo");
  config.likelihood_weight = 1 + options.get_float_or("pref_ftx", 0);
  return config;
}

UnpairedConfig kto_from(const Options& options) {
  const std::string loss = loss_type_of(options, "kto");
  if (loss != "kto" && loss != "apo_zero_unpaired")
    refuse_loss(options, "kto", loss, "kto, apo_zero_unpaired");
  refuse_term(options, "kto");
  const bool is_without = !options.get_bool_or("calculate_kl", true);  // Megatron-SWIFT's
  return {.beta = beta_of(options),
          .liked_weight = options.get_float("desirable_weight"),
          .disliked_weight = options.get_float("undesirable_weight"),
          .measures_drift = loss == "kto" && !is_without};
}

void take_smoothing(const Options& options, PreferenceConfig& config) {
  config.label_smoothing = options.get_float_or("label_smoothing", 0);
  if (config.label_smoothing == 0 || config.loss == PairLoss::kSigmoid) return;
  throw UsageError(
      tr("[train] {}: only sigmoid losses are smoothed", options.given_as("label_smoothing")));
}

}  // namespace danlu::settings
