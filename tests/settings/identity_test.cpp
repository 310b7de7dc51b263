// Which run a line means, and what of it a resume or another rank may have otherwise.
#include "settings/identity.h"

#include <gmock/gmock.h>

#include "settings/option_lines.h"

namespace danlu::settings::options_test {

using testing::HasSubstr;

class Identity : public TrainOptions {
 protected:
  Json of(const std::vector<std::string>& words) const {
    const TrainConfig config = with("sft", words);
    return run_identity(config, open_model(config.model),
                        plan_run(config, /*num_samples=*/100, data::LastBatch::kPartial));
  }
};

TEST_F(Identity, KeysAreOptionsOrWhatIsDerivedFromSeveral) {
  const std::set<std::string> derived = {"precision",
                                         "lora",
                                         "num_samples",
                                         "total_steps",
                                         "start_lr",
                                         "warmup_ramp",
                                         "pictures",
                                         "objective",
                                         "mtp",
                                         "nf4",
                                         "routers",
                                         "steps_run_on",
                                         "optimizer",
                                         "muon",
                                         "optimizer_subspace",
                                         "optimizer_low_rank",
                                         "texts_are_samples",
                                         "texts_end_epochs",
                                         "splits_rows"};
  const OptionTable table = cli::sft_options();
  const Json identity = of({});
  for (const auto& [key, value] : identity.items()) {
    const OptionSpec* option = table.find_spec(key);
    EXPECT_TRUE(derived.contains(key) || (option && option->name == key)) << key;
  }
  EXPECT_EQ(identity.at("warmup_steps"), 1);  // 0.05 of 7 steps of 16 samples
}

TEST_F(Identity, ANamedCheckpointMayBeGoneOnWithOtherRatesButNotOtherAdapters) {
  const Json then = of({}), now = of({"--lr", "0.5", "--lora_rank", "4"});
  const IdentityChange named = compare_identities(then, now, /*named=*/true);
  EXPECT_EQ(named.tolerable, "lr: 0.0001 then, 0.5 now");
  EXPECT_THAT(named.fatal, HasSubstr("lora: {\"rank\":8,"));
  const IdentityChange found = compare_identities(then, now, /*named=*/false);
  EXPECT_EQ(found.tolerable, "");
  EXPECT_THAT(found.fatal, HasSubstr("lr: 0.0001 then, 0.5 now"));
}

TEST_F(Identity, OfAnObjectiveTheValuesThatDifferAreNamedWithTheirFlags) {
  const auto rloo = [&](const std::vector<std::string>& more) {
    const TrainConfig config =
        with("rlhf", std::vector<std::string>{"--rlhf_type", "grpo", "--reward_funcs", "accuracy",
                                              "--advantage_estimator", "rloo"} +
                         more);
    return run_identity(config, open_model(config.model),
                        plan_run(config, /*num_samples=*/100, data::LastBatch::kPartial));
  };
  const Json then = rloo({"--kl_in_reward", "false", "--temperature", "1", "--top_k", "7"});
  EXPECT_EQ(compare_identities(then, rloo({}), /*named=*/true).fatal,
            "objective.policy.kl: 0.04 then, 0.0 now (--beta, --kl_in_reward); "
            "objective.policy.reward_kl: null then, 0.04 now (--beta, --kl_in_reward); "
            "objective.policy.temperature: 1.0 then, 0.9 now (--temperature); "
            "objective.policy.top: [1.0,7] then, [1.0,0] now (--top_p, --top_k)");
  EXPECT_EQ(compare_identities(then, then, /*named=*/false).fatal, "");
  EXPECT_THAT(compare_identities(of({}), then, /*named=*/true).fatal,
              HasSubstr("objective: null then, {"));
}

TEST_F(Identity, SettingsOfRewardsAreComparedWhereTheRewardIsThere) {
  const auto judged = [&](const std::vector<std::string>& more) {
    const TrainConfig config =
        with("rlhf", std::vector<std::string>{"--rlhf_type", "grpo", "--reward_funcs"} + more);
    return Json{{"objective", objective_identity(config.objective)}};
  };
  const std::vector<std::string> longer = {"--cosine_max_len", "640"};
  EXPECT_THAT(compare_identities(judged({"cosine"}),
                                 judged(std::vector<std::string>{"cosine"} + longer), true)
                  .fatal,
              HasSubstr("objective.policy.rules.cosine: [0,-0.5,0.0,1.0,0.5] then, "
                        "[640,-0.5,0.0,1.0,0.5] now (--cosine_max_len, "));
  EXPECT_EQ(judged({"accuracy"}), judged(std::vector<std::string>{"accuracy"} + longer));
}

// Every flag that is named is one.
TEST_F(Identity, FlagsOfAnObjectivesValuesAreThere) {
  Json then = {{"name", 1}, {"reference", 1}, {"reward_models", 1}};
  for (const char* of : {"loss", "beta", "gamma", "label_smoothing", "likelihood_weight"})
    then["pairs"][of] = 1;
  for (const char* of : {"beta", "liked_weight", "disliked_weight", "measures_drift"})
    then["unpaired"][of] = 1;
  then["reward"]["centring"] = 1;
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"--rlhf_type", "ppo", "--whiten_rewards"},
        std::vector<std::string>{"--rlhf_type", "grpo", "--dynamic_sample", "--kl_in_reward",
                                 "--min_p", "0.1", "--stop_words", "x",
                                 "--partial_rollout_max_split", "2"}}) {
    const TrainConfig config =
        with("rlhf",
             words + std::vector<std::string>{"--reward_funcs", "accuracy", "cosine", "repetition",
                                              "soft_overlong", "--soft_cache_length", "8"});
    then["policy"].update(objective_identity(config.objective).at("policy"));
  }
  Json now = then.flatten();
  for (auto& [key, value] : now.items()) value = "other";
  const std::string text =
      compare_identities({{"objective", then}}, {{"objective", now.unflatten()}},
                         /*named=*/true)
          .fatal;
  const OptionTable table = cli::rlhf_options();
  size_t count = 0;
  for (size_t at = text.find("--"); at != text.npos; at = text.find("--", at + 2)) {
    const size_t end = text.find_first_of(",)", at);
    EXPECT_NE(table.find_spec(text.substr(at + 2, end - at - 2)), nullptr) << text.substr(at, 40);
    ++count;
  }
  EXPECT_GT(count, 40u);
  EXPECT_THAT(text, testing::Not(HasSubstr(" now; "))) << "no flag is named";
}

TEST_F(Identity, WhatAnOlderVersionDidNotKeepIsADifference) {
  const Json now = of({});
  Json then = now;
  then.erase("pack_sequences");
  EXPECT_EQ(compare_identities(then, now, /*named=*/true).fatal,
            "pack_sequences: null then, false now");
  EXPECT_EQ(compare_identities(now, now, /*named=*/false).fatal, "");
}

// Before the key was kept, models with experts had a balance loss as now.
TEST_F(Identity, RoutersOfAnOlderVersionAreNotCompared) {
  Json now = of({});
  now["routers"] = {{"aux_loss_coef", 0.001}};
  Json then = now;
  then.erase("routers");
  EXPECT_EQ(compare_identities(then, now, /*named=*/false).fatal, "");
  EXPECT_EQ(compare_identities(then, now, /*named=*/true).tolerable, "");
  then["routers"] = nullptr;
  EXPECT_THAT(compare_identities(then, now, /*named=*/false).fatal, HasSubstr("routers: null"));
  EXPECT_THAT(compare_identities(then, now, /*named=*/true).tolerable, HasSubstr("routers: null"));
}

TEST_F(Identity, PicturesAreThoseOfTheProcessorBesideTheTokenizer) {
  EXPECT_TRUE(of({}).at("pictures").is_null());
  fs::create_directories(directory_ / "hf");
  write_json_file(directory_ / "hf/preprocessor_config.json",
                  {{"image_processor_type", "Qwen2VLImageProcessor"}});
  const std::vector<std::string> words = {"--tokenizer", (directory_ / "hf").string()};
  const Json then = of(words), now = of(words + std::vector<std::string>{"--exif", "ignore"});
  EXPECT_THAT(compare_identities(then, now, /*named=*/true).fatal, HasSubstr("pictures: {"));
}

TEST_F(Identity, ScopesOfOptionsReachWhoeverCompares) {
  const TrainConfig config = with("sft", {"--dry_run", "--resume", "none"});
  EXPECT_THAT(config.of_start, testing::ElementsAre("dry_run", "overwrite_output_dir", "plan_check",
                                                    "resume", "write_samples"));
  EXPECT_THAT(
      config.of_machine,
      testing::ElementsAre("cache_dir", "dataloader_num_workers", "hostfile", "master_addr",
                           "master_port", "max_restarts", "min_ranks", "nnodes", "node_rank",
                           "nproc", "offload_dir", "python", "rdzv_timeout", "use_hf", "workers"));
}

}  // namespace danlu::settings::options_test
