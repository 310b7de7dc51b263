// What lines of learning from preferences and rewards mean in the systems that they come from.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "settings/option_lines.h"
#include "settings/options/objective_options.h"

namespace danlu::settings::options_test {

using testing::AllOf, testing::HasSubstr, testing::Not;
using Words = std::vector<std::string>;

class RewardLines : public TrainOptions {
 protected:
  ObjectiveConfig objective(const std::string& verb, const Words& words) const {
    return with(verb, words).objective;
  }
  /// Without opening what the line names.
  ObjectiveConfig said(const std::string& verb, const Words& words) const {
    const OptionTable table = verb == "rlhf"        ? cli::rlhf_options()
                              : verb == "posttrain" ? cli::posttrain_options()
                                                    : cli::train_options();
    return objective_from(verb, table.parse(words + base(), /*accepts_config=*/true));
  }
  /// A line of danlu rlhf --rlhf_type grpo.
  static Words grpo(const Words& more) {
    return Words{"--rlhf_type", "grpo", "--reward_funcs", "accuracy"} + more;
  }
  Reinforcement told(const Words& more) const { return objective("rlhf", grpo(more)).policy; }
  Reinforcement ppo(const std::string& verb, const Words& more) const {
    const Words by = verb == "rlhf"        ? Words{"--rlhf_type", "ppo"}
                     : verb == "posttrain" ? Words{"--stage", "trl_ppo"}
                                           : Words{"--stage", "ppo"};
    return objective(verb, by + Words{"--reward_funcs", "accuracy"} + more).policy;
  }
};

TEST_F(RewardLines, DpoOfMsSwift2HasALikelihoodTerm) {
  const auto weight = [&](const Words& words) {
    const PreferenceConfig pairs = objective("rlhf", words).preference;
    EXPECT_EQ(pairs.likelihood == LikelihoodTerm::kAnswerTokens, pairs.likelihood_weight > 0);
    return pairs.likelihood_weight;
  };
  const Words old = {"--sft_type", "lora"};
  EXPECT_EQ(weight(old), 1);
  EXPECT_EQ(weight(old + Words{"--rlhf_type", "dpo", "--rpo_alpha", "0"}), 0);
  EXPECT_EQ(weight(old + Words{"--rpo_alpha", "none"}), 0);
  EXPECT_EQ(weight(old + Words{"--rpo_alpha", "0.5"}), 0.5);
  EXPECT_EQ(weight(old + Words{"--rlhf_type", "simpo", "--cpo_alpha", "0"}), 0) << "of dpo alone";
  EXPECT_EQ(weight({}), 0) << "today's";
  const auto is_said = HasSubstr("--train_type: in ms-swift 3.0 to 3.7 dpo had the term");
  EXPECT_THAT(notices("rlhf", {"--train_type", "lora"}), is_said);
  EXPECT_THAT(notices("rlhf", {"--train_type", "lora", "--rpo_alpha", "0.1"}), Not(is_said));
  EXPECT_THAT(notices("rlhf", {"--tuner_type", "lora"}), Not(HasSubstr("in ms-swift 3.0")));
  EXPECT_THAT(notices("rlhf", {"--train_type", "lora", "--rlhf_type", "kto"}),
              Not(HasSubstr("in ms-swift 3.0")));
}

TEST_F(RewardLines, MsSwift4DrawsFromAllTokensAnd3FromLikelyOnes) {
  const auto drawing = [&](const Words& more) {
    const Reinforcement policy = told(more);
    return std::make_pair(policy.top_p, policy.top_k);
  };
  using Drawing = std::pair<double, int64_t>;
  EXPECT_EQ(drawing({}), Drawing(1, 0));
  EXPECT_EQ(drawing({"--tuner_type", "lora"}), Drawing(1, 0));
  EXPECT_EQ(drawing({"--train_type", "lora"}), Drawing(0.9, 50));
  EXPECT_EQ(drawing({"--train-type", "lora", "--top_p", "0.5"}), Drawing(0.5, 50));
  EXPECT_EQ(drawing({"--top_k", "-1"}), Drawing(1, 0)) << "vLLM's word for all";
  EXPECT_THAT(refusal("rlhf", grpo({"--top_k", "-2"})), HasSubstr("--top_k"));
  const Reinforcement of_ppo = ppo("rlhf", {"--train_type", "lora"});
  EXPECT_EQ(Drawing(of_ppo.top_p, of_ppo.top_k), Drawing(1, 0));
}

TEST_F(RewardLines, MegatronSwiftCountsStepsOfAGeneration) {
  const Words batch = {"--global_batch_size", "8", "--micro_batch_size", "2"};
  const auto steps = [&](const Words& more) { return told(batch + more).steps; };
  const Words together = {"--steps_per_generation", "4"};
  EXPECT_EQ(steps(together + Words{"--profile", "megatron-swift"}), 4);
  EXPECT_EQ(steps({"--profile", "megatron-swift"}), 1);
  EXPECT_EQ(steps(together), 1) << "four micro-batches are a step";
}

TEST_F(RewardLines, MegatronSwiftHasOneScaleAndOnePlaceOfTheDistance) {
  for (const char* estimator : {"grpo", "rloo", "reinforce_plus_plus"}) {
    const Reinforcement policy =
        told({"--profile", "megatron-swift", "--advantage_estimator", estimator, "--beta", "0.5"});
    EXPECT_EQ(policy.scale, RewardScale::kGroup) << estimator;
    EXPECT_EQ(policy.loss.kl, 0.5) << estimator;
    EXPECT_EQ(policy.reward_kl, 0) << estimator;
  }
  const Reinforcement other = told({"--profile", "megatron-swift", "--advantage_estimator", "rloo",
                                    "--scale_rewards", "none", "--kl_in_reward", "true"});
  EXPECT_EQ(other.scale, RewardScale::kNone);
  EXPECT_GT(other.reward_kl, 0);
}

TEST_F(RewardLines, PpoOfMindSpeedDrawsAsItsFlagsDo) {
  const Reinforcement silent = ppo("posttrain", {});
  EXPECT_EQ(silent.max_new_tokens, 128);
  EXPECT_EQ(silent.top_p, 0.95);
  EXPECT_EQ(silent.top_k, 50);
  EXPECT_EQ(ppo("posttrain", {"--max-new-tokens", "64"}).max_new_tokens, 64);
  const Reinforcement others = told({"--profile", "mindspeed"});
  EXPECT_EQ(others.max_new_tokens, 512);
  EXPECT_EQ(others.top_k, 0);
  const Words line = {"--stage", "trl_ppo", "--reward_funcs", "accuracy"};
  const auto is_said = HasSubstr("MindSpeed-LLM takes the likeliest ones");
  EXPECT_THAT(notices("posttrain", line), is_said);
  EXPECT_THAT(notices("posttrain", line + Words{"--do-sample"}), Not(is_said));
}

TEST_F(RewardLines, PromptsThatAreAnsweredKeepTheirEnds) {
  const auto cut = [&](const std::string& verb, const Words& words) {
    return with(verb, words).data.truncation;
  };
  const Words rewards = {"--reward_funcs", "accuracy"};
  EXPECT_EQ(cut("rlhf", grpo({})), "left") << "ms-swift's default of grpo";
  EXPECT_EQ(cut("rlhf", grpo({"--profile", "megatron-swift"})), "left");
  EXPECT_EQ(cut("rlhf", grpo({"--truncation_strategy", "delete"})), "delete");
  EXPECT_EQ(cut("rlhf", {"--rlhf_type", "dpo"}), "delete");
  EXPECT_EQ(cut("rlhf", rewards + Words{"--rlhf_type", "ppo"}), "delete");
  EXPECT_EQ(cut("posttrain", rewards + Words{"--stage", "trl_ppo"}), "left")
      << "MindSpeed-LLM's rule is for rows with answers";
  EXPECT_EQ(cut("train", rewards + Words{"--stage", "ppo", "--finetuning_type", "lora"}), "left");
  EXPECT_EQ(cut("posttrain", {"--stage", "dpo"}), "shares");
  for (const char* rule : {"right", "shares"})
    EXPECT_THAT(refusal("rlhf", grpo({"--truncation_strategy", rule})),
                AllOf(HasSubstr(std::string("--truncation_strategy ") + rule),
                      HasSubstr("left keeps the ends of long prompts")));
}

TEST_F(RewardLines, ATermThatThereIsNotIsAnError) {
  const Words factory = {"--finetuning_type", "lora", "--pref_ftx", "0.5"};
  const PreferenceConfig orpo =
      objective("train", factory + Words{"--stage", "dpo", "--pref_loss", "orpo"}).preference;
  EXPECT_EQ(orpo.likelihood, LikelihoodTerm::kAnswerMeans);
  EXPECT_EQ(orpo.likelihood_weight, 1.5) << "the term that orpo has anyway";
  EXPECT_THAT(refusal("train", factory + Words{"--stage", "kto"}),
              HasSubstr("--pref_ftx 0.5: kto has no such term"));
  EXPECT_THAT(refusal("rlhf", {"--rlhf_type", "orpo", "--pref_ftx", "1"}),
              HasSubstr("--pref_ftx 1: orpo has no such term"));
  EXPECT_THAT(refusal("rlhf", {"--rlhf_type", "cpo", "--pref_ftx", "1"}),
              HasSubstr("cpo has no such term"));
  EXPECT_EQ(refusal("rlhf", {"--rlhf_type", "kto", "--pref_ftx", "0"}), "(accepted)");
}

TEST_F(RewardLines, SpellingsOfMsSwift) {
  for (const Words& silent :
       {Words{"--top_entropy_quantile", "1.0"}, Words{"--f_divergence_type", "reverse_kl"},
        Words{"--router_replay_mode", "disabled"}, Words{"--ld_alpha", "1.0"},
        Words{"--fipo_decay_rate", "32"}, Words{"--epsilon_high", "none"}, Words{"--delta", "None"},
        Words{"--rpo_alpha", "none"},
        Words{"--sapo_temperature_pos", "1", "--sapo_temperature_neg", "1.1"}})
    EXPECT_EQ(refusal("rlhf", grpo(silent)), "(accepted)") << silent[0];
  EXPECT_EQ(told({"--epsilon", "0.3", "--epsilon_high", "none"}).loss.clip_high, 0.3);
  EXPECT_EQ(told({"--delta", "none"}).loss.ratio_limit, 0);
  const PolicyLoss soft = told({"--loss_type", "sapo", "--sapo_temperature_neg", "1.5"}).loss;
  EXPECT_EQ(soft.tau_negative, 1.5);
  for (const Words& other :
       {Words{"--top_entropy_quantile", "0.2"}, Words{"--f_divergence_type", "js_divergence"},
        Words{"--router_replay_mode", "R2"}})
    EXPECT_THAT(refusal("rlhf", grpo(other)), HasSubstr("is not available")) << other[0];
  const auto drift = [&](const Words& more) {
    return objective("rlhf", Words{"--rlhf_type", "kto"} + more).unpaired.measures_drift;
  };
  EXPECT_TRUE(drift({}));
  EXPECT_TRUE(drift({"--calculate_KL", "true"}));
  EXPECT_FALSE(drift({"--calculate_KL", "false"}));
  const std::string model = (directory_ / "model").string();
  EXPECT_EQ(said("rlhf", {"--mcore_ref_model", model}).reference, directory_ / "model");
}

TEST_F(RewardLines, TheReferenceOfAdaptersThatGoOn) {
  const std::string adapters = (directory_ / "model").string();
  const Words from = {"--adapters", adapters};
  const auto is_base = [&](const std::string& verb, const Words& words) {
    return said(verb, words + from).base_is_reference;
  };
  EXPECT_TRUE(is_base("rlhf", {}));
  EXPECT_TRUE(is_base("rlhf", {"--rlhf_type", "kto"}));
  EXPECT_TRUE(is_base("rlhf", grpo({})));
  EXPECT_FALSE(is_base("rlhf", grpo({"--beta", "0"}))) << "there is none";
  EXPECT_FALSE(is_base("rlhf", {"--rlhf_type", "orpo"}));
  EXPECT_FALSE(is_base("rlhf", {"--ref_adapters", adapters}));
  EXPECT_FALSE(is_base("rlhf", {"--ref_model", adapters}));
  EXPECT_FALSE(is_base("rlhf", {"--profile", "danlu"}));
  EXPECT_FALSE(is_base("posttrain", {"--stage", "dpo"}));
  EXPECT_TRUE(is_base("train", {"--stage", "dpo", "--finetuning_type", "lora"}));
  EXPECT_FALSE(objective("rlhf", {}).base_is_reference) << "there are no adapters";
  // Earlier runs say nothing of it.
  const Json identity = objective_identity(said("rlhf", Words{"--profile", "danlu"} + from));
  EXPECT_FALSE(identity.contains("base_is_reference"));
  EXPECT_TRUE(objective_identity(said("rlhf", from)).contains("base_is_reference"));
}

TEST_F(RewardLines, LlamaFactorysPpoCountsRolloutsAndMovesItsWeight) {
  const Words line = {"--stage", "ppo", "--finetuning_type", "lora", "--reward_funcs", "accuracy"};
  const TrainConfig config = with(
      "train", line + Words{"--max_steps", "100", "--save_steps", "10", "--warmup_steps", "5"});
  EXPECT_EQ(config.objective.policy.critic.kl, 0.2);
  EXPECT_EQ(config.objective.policy.critic.kl_target, 6);
  EXPECT_EQ(config.objective.policy.iterations, 4);
  EXPECT_EQ(config.batch.max_steps, 400);
  EXPECT_EQ(config.output.save_steps, 40);
  EXPECT_EQ(config.output.logging_steps, 2000);
  EXPECT_EQ(config.schedule.warmup_steps, 20);
  EXPECT_THAT(notices("train", line), HasSubstr("count rollouts, as there"));
  EXPECT_EQ(ppo("train", {"--finetuning_type", "lora", "--ppo_target", "none"}).critic.kl_target,
            0);
  EXPECT_EQ(ppo("train", {"--finetuning_type", "lora", "--ppo_target", "3"}).critic.kl_target, 3);
  const TrainConfig ours =
      with("rlhf", {"--rlhf_type", "ppo", "--reward_funcs", "accuracy", "--max_steps", "100"});
  EXPECT_EQ(ours.batch.max_steps, 100);
  EXPECT_EQ(ours.objective.policy.critic.kl, 0.05);
  EXPECT_EQ(ours.objective.policy.critic.kl_target, 0);
  EXPECT_FALSE(objective_identity(ours.objective)["policy"]["critic"].contains("kl_target"));
}

TEST_F(RewardLines, WhichRoundsOfAConversationAreCompared) {
  const auto all = [&](const Words& words) { return with("rlhf", words).data.learns_all_rounds; };
  EXPECT_FALSE(all({}));
  EXPECT_TRUE(all({"--rlhf_type", "orpo"})) << "ms-swift's default";
  EXPECT_TRUE(all({"--rlhf_type", "orpo", "--profile", "megatron-swift"}));
  EXPECT_FALSE(all({"--rlhf_type", "orpo", "--loss_scale", "last_round"}));
  EXPECT_FALSE(all({"--rlhf_type", "orpo", "--profile", "danlu"}));
  for (const char* type : {"dpo", "simpo", "cpo", "kto"}) {
    EXPECT_FALSE(all({"--rlhf_type", type})) << type;
    EXPECT_TRUE(all({"--rlhf_type", type, "--loss_scale", "default"})) << type;
  }
  EXPECT_FALSE(all({"--rlhf_type", "rm", "--loss_scale", "default"})) << "read at the last token";
}

TEST_F(RewardLines, WhatDapoAndCispoOfMsSwiftAreDividedBy) {
  const auto counts = [&](const Words& more) { return told(more).loss.counts_cut; };
  EXPECT_TRUE(counts({"--loss_type", "dapo"}));
  EXPECT_TRUE(counts({"--loss_type", "cispo", "--epsilon_high", "5"}));
  EXPECT_FALSE(counts({"--loss_type", "bnpo"}));
  EXPECT_FALSE(counts({"--loss_type", "dapo", "--profile", "danlu"}));
  const auto identity = [&](const Words& more) {
    return objective_identity(objective("rlhf", grpo(more)))["policy"];
  };
  EXPECT_FALSE(identity({"--loss_type", "dapo"}).contains("counts_cut"));
  EXPECT_TRUE(identity({"--loss_type", "dapo", "--overlong_filter"}).contains("counts_cut"));
}

}  // namespace danlu::settings::options_test
