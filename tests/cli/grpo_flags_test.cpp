// Flags of ms-swift's GRPO lines that change what is learnt.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "cli/preference_lines.h"

namespace danlu::test {
namespace {

using testing::HasSubstr;

class GrpoFlags : public PreferenceLines {
 protected:
  std::vector<std::string> grpo(const std::string& to, const std::vector<std::string>& more) const {
    std::vector<std::string> words = {"--reward_funcs",
                                      "repetition",
                                      "soft_overlong",
                                      "--soft_cache_length",
                                      "4",
                                      "--max_completion_length",
                                      "8",
                                      "--num_generations",
                                      "2",
                                      "--tuner",
                                      "full",
                                      "--log_completions",
                                      "true"};
    words.insert(words.end(), more.begin(), more.end());
    return line({"rlhf", "--rlhf_type", "grpo"}, "pairs.jsonl", to, words);
  }
  std::vector<Json> samples_of(const std::string& run) const {
    std::ifstream file(*this / run / "samples.jsonl");
    std::vector<Json> found;
    for (std::string text; std::getline(file, text);) {
      Json sample = Json::parse(text);
      if (!sample.value("held_out", false)) found.push_back(std::move(sample));
    }
    return found;
  }
};

// A model that all but stands still is worth the same in every evaluation.
TEST_F(GrpoFlags, ARunThatStopsEarlySaysTheReward) {
  const ProgramResult result =
      ok(grpo("run", {"--lr", "1e-9", "--eval_steps", "1", "--top_k", "1", "--early_stop_interval",
                      "1", "--profile", "danlu"}));
  EXPECT_THAT(result.err, HasSubstr("stopped early after step 2: 1 evaluations in a row found no "
                                    "better reward than"));
  EXPECT_EQ(steps_of(*this / "run").size(), 2u);
}

TEST_F(GrpoFlags, TheDistanceInRewards) {
  const std::vector<std::string> flags = {"--beta",         "0.5",     "--lr", "1e-2",
                                          "--lr_scheduler", "constant"};
  const auto with = [&](const std::string& value) {
    std::vector<std::string> words = flags;
    words.insert(words.end(), {"--kl_in_reward", value});
    return words;
  };
  ok(grpo("loss", with("false")));
  ok(grpo("reward", with("true")));
  const auto in_loss = steps_of(*this / "loss"), in_reward = steps_of(*this / "reward");
  ASSERT_EQ(in_reward.size(), 4u);
  // Nothing has moved in the first step, so that both are the same to rounding.
  EXPECT_NEAR(in_reward[0].at("kl").get<double>(), 0, 1e-4);
  EXPECT_NEAR(in_reward[0].at("loss").get<double>(), in_loss[0].at("loss").get<double>(), 1e-5);
  EXPECT_EQ(in_reward[0].at("reward"), in_loss[0].at("reward"));
  EXPECT_GT(std::fabs(in_reward[3].at("kl").get<double>()), 1e-3);
  EXPECT_NE(in_reward[3].at("grad_norm"), in_loss[3].at("grad_norm"));
  // A run that stopped goes on to the bit.
  std::filesystem::remove_all(*this / "reward" / "checkpoint-4");
  std::filesystem::remove(*this / "reward" / "DONE");
  EXPECT_THAT(ok(grpo("reward", with("true"))).err, HasSubstr("checkpoint-2"));
  const auto again = steps_of(*this / "reward");
  for (const char* name : {"loss", "kl", "grad_norm"})
    EXPECT_EQ(again.back().at(name), in_reward.back().at(name)) << name;
  const ProgramResult exploded = run(
      grpo("far", {"--kl_in_reward", "true", "--beta", "0.5", "--lr", "1", "--max_kl", "1e-6"}));
  EXPECT_EQ(exploded.exit_code, 9) << exploded.err;
  EXPECT_THAT(exploded.err, HasSubstr("away from its reference"));
}

TEST_F(GrpoFlags, RewardsThatNothingCanBeComputedWithAreNamed) {
  // Every second answer gets a number whose square is none.
  write("half.sh", "#!/bin/sh\nawk '{ print NR % 2 ? \"1e308\" : NR }'\n");
  write("all.sh", "#!/bin/sh\nawk '{ print NR % 2 ? \"1e308\" : \"-1e13\" }'\n");
  const auto with = [&](const std::string& to, const std::string& program) {
    std::vector<std::string> words = grpo(to, {"--num_generations", "4", "--reward_weights", "1"});
    const auto at = std::find(words.begin(), words.end(), "repetition");
    *at = "program:sh " + program;
    words.erase(at + 1);  // soft_overlong
    return words;
  };
  const ProgramResult half = ok(with("half", "half.sh"));
  EXPECT_THAT(half.err, HasSubstr("[reward] program:half.sh: 2 of 4 scores are beyond 1e+12"));
  for (const Json& step : steps_of(*this / "half")) {
    for (const char* name : {"loss", "reward", "reward_std", "grad_norm"})
      EXPECT_TRUE(step.at(name).is_number()) << name << step.dump();
    EXPECT_EQ(step.at("reward"), 3) << "the mean of 2 and 4";
  }
  for (const Json& sample : samples_of("half"))
    EXPECT_EQ(sample.at("reward").is_null(), sample.at("advantage") == 0) << sample.dump();
  expect_error(run(with("all", "all.sh")), 3,
               {"4 of 4 scores are beyond 1e+12", "could judge none of the first 4 answers",
                "the same command has it judged again"});
  // The same command goes on where the program is mended.
  write("all.sh", "#!/bin/sh\nawk '{ print NR }'\n");
  EXPECT_EQ(steps_of(*this / "all").size(), 0u);
  ok(with("all", "all.sh"));
  EXPECT_EQ(steps_of(*this / "all").size(), 4u);
  std::vector<std::string> heavy = with("x", "half.sh");
  *(std::find(heavy.begin(), heavy.end(), "--reward_weights") + 1) = "1e7";
  expect_error(run(heavy), 2, {"--reward_weights 1e7: a weight is at most 1e+06"});
}

TEST_F(GrpoFlags, WhatALineCannotMeanIsSaidInItsOwnWords) {
  for (const char* type : {"grpo", "ppo"}) {
    std::vector<std::string> words = grpo("x", {"--do_sample", "false"});
    *(std::find(words.begin(), words.end(), "--rlhf_type") + 1) = type;
    expect_error(run(words), 2,
                 {"--do_sample false: answers are drawn by chance", "--temperature near 0"});
  }
  ok(grpo("drawn", {"--do_sample", "true", "--max_steps", "1"}));
  EXPECT_THAT(train(good("good.jsonl"), {"--do_sample", "false", "--dry_run"}).err,
              HasSubstr("--do_sample has no effect in sft"));
  expect_error(run(grpo("x", {"--reward_model_quantization_bit", "4"})), 2,
               {"reward models are held in --dtype", "one whose files hold 4 bits"});
  expect_error(run(line({"rlhf"}, "pairs.jsonl", "x", {"--ref_model_quantization_bit", "4"})), 2,
               {"a model that --ref_model names is held in --dtype", "--quantization_bit 4 holds"});
  EXPECT_FALSE(std::filesystem::exists(*this / "x"));
}

TEST_F(GrpoFlags, AReferenceWithTheAdaptersThatTheTrainingBeginsWith) {
  ok(line({"rlhf", "--tuner", "lora"}, "pairs.jsonl", "first"));
  const std::vector<std::string> further = {"--tuner", "lora", "--adapters", "first"};
  const auto both = [&](const std::string& reference) {
    std::vector<std::string> words = further;
    words.insert(words.end(), {"--ref_adapters", reference});
    return words;
  };
  // Without --ref_adapters the reference is the base, as in ms-swift.
  ok(line({"rlhf"}, "pairs.jsonl", "plain", further));
  ok(line({"rlhf"}, "pairs.jsonl", "both", both("first")));
  EXPECT_GT(std::abs(steps_of(*this / "plain")[0].at("loss").get<double>() - std::log(2.0)), 1e-3);
  EXPECT_NEAR(steps_of(*this / "both")[0].at("loss").get<double>(), std::log(2.0), 1e-6);
  expect_error(run(line({"rlhf"}, "pairs.jsonl", "x", both("plain"))), 2,
               {"--ref_adapters plain", "--ref_model"});
}

TEST_F(GrpoFlags, MicroBatchesAreCountedAsTheirProjectDoes) {
  // A step is 2 samples × 2: four micro-batches are two steps of one rollout.
  for (const std::vector<std::string>& flags :
       {std::vector<std::string>{"--steps_per_generation", "4"},
        std::vector<std::string>{"--generation_batch_size", "8"}}) {
    const std::string to = flags[1];
    ok(grpo(to, flags));
    const auto steps = steps_of(*this / to);
    ASSERT_EQ(steps.size(), 4u);
    for (size_t step = 0; step < 4; ++step)
      EXPECT_EQ(steps[step].contains("reward"), step % 2 == 0) << step;
    EXPECT_EQ(samples_of(to).size(), 16u);
  }
  EXPECT_EQ(samples_of("4"), samples_of("8"));
}

TEST_F(GrpoFlags, WordsThatEndAnswersAndRewardsByThemselves) {
  ok(grpo("words", {"--stop_words", "h", "--scale_rewards", "gdpo"}));
  const auto samples = samples_of("words");
  ASSERT_EQ(samples.size(), 16u);
  int ended = 0;
  for (const Json& sample : samples) {
    const std::string text = sample.at("completion");
    const auto at = text.find('h');
    if (at == text.npos) continue;
    ++ended;
    EXPECT_EQ(text.find(' ', at + 1), text.npos) << "no further word: " << text;
  }
  EXPECT_GT(ended, 0);
  // A rollout's advantages are whitened over all its answers.
  for (size_t begin = 0; begin < samples.size(); begin += 4) {
    double sum = 0, squares = 0;
    for (size_t i = begin; i < begin + 4; ++i) {
      const double worth = samples[i].at("advantage");
      sum += worth;
      squares += worth * worth;
    }
    EXPECT_NEAR(sum, 0, 1e-6);
    EXPECT_TRUE(std::fabs(squares - 3) < 1e-4 || squares < 1e-6) << squares;
  }
}

}  // namespace
}  // namespace danlu::test
