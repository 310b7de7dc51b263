// What the flags of ms-swift and TRL say about learning from rewards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "settings/option_lines.h"
#include "settings/run_plan.h"

namespace danlu::settings::options_test {

using testing::HasSubstr, testing::Not;

class ReinforcementOptions : public TrainOptions {
 protected:
  std::vector<std::string> grpo(const std::vector<std::string>& more) const {
    return std::vector<std::string>{"--rlhf_type", "grpo", "--reward_funcs", "accuracy"} + more;
  }
  Reinforcement told(const std::vector<std::string>& more) const {
    return with("rlhf", grpo(more)).objective.policy;
  }
};

TEST_F(ReinforcementOptions, HowManyAnswersAreDrawnAtOneTime) {
  const std::vector<std::string> batch = {"--batch_size", "4", "--accum", "2"};
  const auto steps = [&](const std::vector<std::string>& more) { return told(batch + more).steps; };
  EXPECT_EQ(steps({}), 1);
  EXPECT_EQ(steps({"--num_mini_batches", "3"}), 3);
  // Micro-batches, of which a step has two; half a step is drawn twice before weights change.
  EXPECT_EQ(steps({"--steps_per_generation", "2"}), 1);
  EXPECT_EQ(steps({"--steps_per_generation", "8"}), 4);
  EXPECT_EQ(steps({"--steps_per_generation", "1"}), 1);
  EXPECT_EQ(steps({"--generation_batch_size", "32"}), 4);
  EXPECT_EQ(steps({"--generation_batch_size", "8"}), 1);
  EXPECT_THAT(
      refusal("rlhf", grpo(batch + std::vector<std::string>{"--steps_per_generation", "3"})),
      testing::AllOf(HasSubstr("--steps_per_generation 3: the 12 answers"),
                     HasSubstr("no whole steps of 8"),
                     HasSubstr("micro-batches, of which a step has 2")));
  EXPECT_THAT(
      refusal("rlhf", grpo(batch + std::vector<std::string>{"--generation_batch_size", "20"})),
      HasSubstr("a multiple of 8"));
  EXPECT_THAT(
      refusal("rlhf", grpo({"--generation_batch_size", "8", "--steps_per_generation", "1"})),
      HasSubstr("either says how many answers"));
}

TEST_F(ReinforcementOptions, PpoCountsItsAnswersSoToo) {
  const std::vector<std::string> ppo = {"--rlhf_type",  "ppo", "--reward_funcs", "accuracy",
                                        "--batch_size", "4",   "--accum",        "2"};
  for (const std::vector<std::string>& flags :
       {std::vector<std::string>{"--steps_per_generation", "8"},
        std::vector<std::string>{"--generation_batch_size", "32"}}) {
    EXPECT_EQ(with("rlhf", ppo + flags).objective.policy.steps, 4);
    EXPECT_THAT(notices("rlhf", ppo + flags), Not(HasSubstr(flags[0])));
  }
}

TEST_F(ReinforcementOptions, APartOfAStepIsSaidWhereAnswersToSeveralPromptsAreCompared) {
  const auto said = [&](const std::vector<std::string>& more) {
    return notices("rlhf", grpo(std::vector<std::string>{"--batch_size", "4", "--accum", "4",
                                                         "--generation_batch_size", "8"} +
                                more));
  };
  const auto is_said = HasSubstr("--generation_batch_size 8: the 16 answers of a step are drawn");
  EXPECT_THAT(said({}), Not(is_said));
  EXPECT_THAT(said({"--scale_rewards", "none"}), Not(is_said));
  EXPECT_THAT(said({"--advantage_estimator", "rloo"}), Not(is_said));
  EXPECT_THAT(said({"--advantage_estimator", "rloo", "--scale_rewards", "batch"}), is_said);
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"--scale_rewards", "batch"},
        std::vector<std::string>{"--scale_rewards", "gdpo"},
        std::vector<std::string>{"--advantage_estimator", "reinforce_plus_plus"},
        std::vector<std::string>{"--advantage_estimator", "reinforce_plus_plus_baseline"}})
    EXPECT_THAT(said(more), is_said) << more[1];
  EXPECT_THAT(said({"--scale_rewards", "batch", "--generation_batch_size", "16"}),
              Not(HasSubstr("of a step are drawn")));
}

TEST_F(ReinforcementOptions, AdaptersOfAReference) {
  fs::create_directories(directory_ / "other");
  const std::string model = (directory_ / "model").string();
  for (const char* kind : {"dpo", "kto", "grpo", "ppo"}) {
    const std::vector<std::string> line = {"--rlhf_type",    kind, "--reward_funcs", "accuracy",
                                           "--ref_adapters", model};
    EXPECT_THAT(refusal("rlhf", line + std::vector<std::string>{"--ref_model", model}),
                HasSubstr("--ref_adapters beside --ref_model"))
        << kind;
    EXPECT_THAT(refusal("rlhf", line), HasSubstr("those that the training begins with")) << kind;
  }
  const std::vector<std::string> adapters = {"--ref_adapters", model};
  for (const char* kind : {"simpo", "cpo", "orpo", "rm"})
    EXPECT_THAT(notices("rlhf", std::vector<std::string>{"--rlhf_type", kind} + adapters),
                HasSubstr("--ref_adapters has no effect"))
        << kind;
  EXPECT_THAT(notices("rlhf", grpo(std::vector<std::string>{"--beta", "0"} + adapters)),
              HasSubstr("--ref_adapters has no effect"));
  EXPECT_THAT(notices("sft", adapters), HasSubstr("--ref_adapters has no effect"));
}

TEST_F(ReinforcementOptions, WhatRewardsAreDividedByFollowsFromTheEstimator) {
  const auto scale = [&](const std::string& estimator, const std::vector<std::string>& more = {}) {
    const Reinforcement policy =
        told(std::vector<std::string>{"--advantage_estimator", estimator} + more);
    return std::make_pair(policy.advantage, policy.scale);
  };
  EXPECT_EQ(scale("grpo"), std::make_pair(Advantage::kGroup, RewardScale::kGroup));
  EXPECT_EQ(scale("rloo"), std::make_pair(Advantage::kLeaveOut, RewardScale::kNone));
  EXPECT_EQ(scale("reinforce_plus_plus"), std::make_pair(Advantage::kCentred, RewardScale::kBatch));
  const std::vector<std::string> group = {"--scale_rewards", "group"};
  EXPECT_EQ(scale("rloo", group).second, RewardScale::kGroup);
  EXPECT_EQ(scale("reinforce_plus_plus", group).second, RewardScale::kGroup);
  EXPECT_EQ(scale("reinforce_plus_plus_token").first, Advantage::kWhitened);
  EXPECT_EQ(scale("reinforce_plus_plus", {"--profile", "mindspeed"}).first, Advantage::kWhitened);
  for (const char* estimator : {"reinforce_plus_plus_token", "reinforce_plus_plus_baseline"})
    EXPECT_THAT(
        refusal("rlhf", grpo(group + std::vector<std::string>{"--advantage_estimator", estimator})),
        HasSubstr("whitens over tokens, and divides by nothing else"));
  // Runs of RLOO from before it could divide go on.
  const auto identity = [&](const std::vector<std::string>& more) {
    return objective_identity(
        with("rlhf", grpo(std::vector<std::string>{"--advantage_estimator", "rloo"} + more))
            .objective)["policy"];
  };
  EXPECT_EQ(identity({}).at("scale"), 0);
  EXPECT_FALSE(identity({}).contains("leave_out_scale"));
  EXPECT_NE(identity({}), identity(group));
}

TEST_F(ReinforcementOptions, ACriticThatLearnsNothingIsRefused) {
  const std::vector<std::string> ppo = {"--rlhf_type", "ppo", "--reward_funcs", "accuracy"};
  EXPECT_THAT(refusal("rlhf", ppo + std::vector<std::string>{"--critic_lr", "0"}),
              HasSubstr("--critic_lr 0: a critic that learns nothing"));
  EXPECT_EQ(with("rlhf", ppo).objective.policy.critic.lr, 0) << "the policy's";
}

TEST_F(ReinforcementOptions, WhereTheDistanceIs) {
  const auto where = [&](const std::vector<std::string>& more) {
    const Reinforcement policy = told(more);
    return std::make_pair(policy.loss.kl, policy.reward_kl);
  };
  using Where = std::pair<double, double>;
  EXPECT_EQ(where({}), Where(0.04, 0));
  EXPECT_EQ(where({"--kl_in_reward", "true"}), Where(0, 0.04));
  EXPECT_EQ(where({"--advantage_estimator", "rloo", "--beta", "0.1"}), Where(0, 0.1));
  EXPECT_EQ(where({"--advantage_estimator", "reinforce_plus_plus"}), Where(0, 0.04));
  EXPECT_EQ(where({"--advantage_estimator", "reinforce_plus_plus_baseline"}), Where(0.04, 0));
  EXPECT_EQ(where({"--advantage_estimator", "rloo", "--kl_in_reward", "false"}), Where(0.04, 0));
  EXPECT_EQ(where({"--kl_in_reward", "--beta", "0"}), Where(0, 0));
  EXPECT_TRUE(told({"--kl_in_reward"}).has_reference());
  EXPECT_FALSE(told({"--kl_in_reward", "--beta", "0"}).has_reference());
  EXPECT_EQ(told({"--scale_rewards", "gdpo"}).scale, RewardScale::kEachRule);
  EXPECT_THAT(refusal("rlhf", grpo({"--scale_rewards", "gdpo", "--kl_in_reward"})),
              HasSubstr("gdpo has no one reward"));
  for (const char* estimator : {"rloo", "reinforce_plus_plus", "reinforce_plus_plus_baseline"})
    EXPECT_THAT(
        refusal("rlhf", grpo({"--scale_rewards", "gdpo", "--advantage_estimator", estimator})),
        HasSubstr(std::string("--scale_rewards gdpo: --advantage_estimator ") + estimator));
  EXPECT_THAT(
      notices("rlhf", {"--rlhf_type", "ppo", "--reward_funcs", "accuracy", "--kl_in_reward"}),
      HasSubstr("--kl_in_reward"));
}

TEST_F(ReinforcementOptions, WhatEndsAnswers) {
  EXPECT_TRUE(told({}).stop_words.empty());
  EXPECT_EQ(told({"--stop_words", "</answer>", "a, b", "\n\n"}).stop_words,
            (std::vector<std::string>{"</answer>", "a, b", "\n\n"}));
  EXPECT_EQ(told({"--stop_words", R"(["x", "y,z"])"}).stop_words,
            (std::vector<std::string>{"x", "y,z"}));
  EXPECT_EQ(told({"--stop_words", "["}).stop_words, std::vector<std::string>{"["});
  EXPECT_EQ(told({"--stop_words", "[1]", "[\"x\", 2]"}).stop_words,
            (std::vector<std::string>{"[1]", "[\"x\", 2]"}))
      << "no lists of texts";
  EXPECT_THAT(refusal("rlhf", grpo({"--stop_words", ""})), HasSubstr("would end every answer"));
  EXPECT_THAT(refusal("rlhf", grpo({"--stop_words", "[]"})),
              HasSubstr("--stop_words: expected words, or a JSON list of some, got '[]'"));
  EXPECT_NE(refusal("rlhf", grpo({"--stop_words", "x", "[]"})), "(accepted)");
}

TEST_F(ReinforcementOptions, DefaultsAreThoseOfTheSystemWhoseLineItIs) {
  EXPECT_EQ(told({}).loss.temperature, 0.9);
  EXPECT_EQ(told({"--profile", "danlu"}).loss.temperature, 1.0);
  const Reinforcement factory =
      with("train", {"--stage", "ppo", "--finetuning_type", "lora", "--reward_funcs", "accuracy"})
          .objective.policy;
  EXPECT_EQ(factory.loss.temperature, 0.95);
  EXPECT_EQ(factory.top_p, 0.7);
  EXPECT_EQ(factory.top_k, 50);
  EXPECT_EQ(factory.max_new_tokens, 1024);
}

TEST_F(ReinforcementOptions, WhatHoldsRatiosBack) {
  const auto loss_of = [&](const std::vector<std::string>& words) { return told(words).loss; };
  EXPECT_EQ(loss_of({}).gate, RatioGate::kClip);
  const PolicyLoss soft = loss_of({"--loss_type", "sapo", "--tau_neg", "1.5"});
  EXPECT_EQ(soft.gate, RatioGate::kSoft);
  EXPECT_EQ(soft.mean, LossMean::kRows);
  EXPECT_EQ(soft.tau_positive, 1.0);
  EXPECT_EQ(soft.tau_negative, 1.5);
  const PolicyLoss weight = loss_of({"--loss_type", "cispo", "--epsilon_high", "5"});
  EXPECT_EQ(weight.gate, RatioGate::kWeight);
  EXPECT_EQ(weight.mean, LossMean::kTokens);
  EXPECT_EQ(weight.clip_high, 5.0);
  EXPECT_THAT(refusal("rlhf", grpo({"--loss_type", "cispo"})),
              HasSubstr("nothing says how large a ratio may be | --epsilon_high 5 is usual"));
  EXPECT_THAT(notices("rlhf", grpo({"--loss_type", "sapo", "--epsilon", "0.3"})),
              HasSubstr("--epsilon has no effect: --loss_type sapo holds"));
}

TEST_F(ReinforcementOptions, CategoriesOfDataSetsAreThoseOfTheJudges) {
  EXPECT_EQ(refusal("rlhf", grpo({"--dataset-category", "1,1"})), "(accepted)");
  EXPECT_THAT(refusal("rlhf", grpo({"--dataset-category", "0,1"})),
              HasSubstr("rules and reward models judge the rows of every data set"));
  EXPECT_THAT(refusal("rlhf", grpo({"--dataset-category", "2"})),
              HasSubstr("0 or 1 for each data set, got 2"));
}

TEST_F(ReinforcementOptions, WhatIsNotHereIsNamed) {
  for (const char* flag : {"--sync_ref_model", "--num_generations_eval", "--teacher_model_server",
                           "--ld_alpha", "--advantage_reweight", "--off_policy_sequence_mask_delta",
                           "--top_entropy_quantile", "--async_generate"}) {
    EXPECT_THAT(refusal("rlhf", grpo({flag, "4"})),
                HasSubstr(std::string(flag) + " is not available: "));
  }
  EXPECT_THAT(
      refusal("rlhf", grpo({"--loss_type", "real"})),
      HasSubstr("--loss_type real: grpo has no such loss | it has grpo, bnpo, dapo, dr_grpo, "
                "sapo, cispo"));
  EXPECT_THAT(refusal("rlhf", grpo({"--max_kl", "0.5", "--beta", "0"})),
              HasSubstr("--max_kl 0.5: there is no reference"));
  EXPECT_EQ(refusal("rlhf", grpo({"--max_kl", "0.5"})), "(accepted)");
  for (const char* flag : {"--vllm_server_base_url", "--log_entropy", "--ref_model_type",
                           "--rollout_importance_sampling_mode"})
    EXPECT_EQ(refusal("rlhf", grpo({flag, "x"})), "(accepted)") << flag;
}

}  // namespace danlu::settings::options_test
