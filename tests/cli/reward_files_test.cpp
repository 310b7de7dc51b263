// Reward models in files: merged, and on their way to MindSpeed-LLM's and back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "cli/preference_lines.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class RewardFiles : public PreferenceLines {
 protected:
  /// The mean score that it gives to the answers of the same policy.
  double reward_by(const std::string& judge) const {
    const std::string to = "drawn_by_" + judge;
    ok(line({"rlhf", "--rlhf_type", "grpo"}, "pairs.jsonl", to,
            {"--reward_model", judge, "--num_generations", "2", "--max_completion_length", "8",
             "--tuner", "full", "--overwrite_output_dir"}));
    return steps_of(*this / to)[0].at("reward").get<double>();
  }
};

TEST_F(RewardFiles, AdaptersOfARewardModelAreMergedWithTheirHead) {
  ok(line({"rlhf", "--rlhf_type", "rm", "--tuner", "lora"}, "pairs.jsonl", "adapters"));
  const ProgramResult merged = ok({"merge", "--adapters", "adapters", "--output", "merged"});
  EXPECT_THAT(merged.err, HasSubstr("--reward_model merged"));
  const Json config = Json::parse(std::ifstream(*this / "merged" / "config.json"));
  EXPECT_EQ(config["architectures"], Json::array({"Qwen2ForSequenceClassification"}));
  EXPECT_EQ(config["id2label"].size(), 1u);
  // It judges as the adapters do.
  EXPECT_NEAR(reward_by("adapters"), reward_by("merged"), 1e-5);
  EXPECT_NE(reward_by("merged"), 0);
}

TEST_F(RewardFiles, AHeadInAFileOfItsOwnIsCarriedIntoAMerge) {
  write("rm.yaml", "stage: rm\ndo_train: true\nfinetuning_type: lora\n");
  ok(line({"train", "rm.yaml"}, "pairs.jsonl", "factory"));
  const ProgramResult merged = ok({"merge", "--adapters", "factory", "--output", "whole"});
  EXPECT_THAT(merged.err, HasSubstr("--reward_model whole"));
  EXPECT_EQ(content_of(*this / "whole" / "value_head.safetensors"),
            content_of(*this / "factory" / "value_head.safetensors"));
  EXPECT_NEAR(reward_by("whole"), reward_by("factory"), 1e-5);
}

TEST_F(RewardFiles, ARewardModelGoesToMindSpeedAndBack) {
  ok(line({"rlhf", "--rlhf_type", "rm", "--tuner", "full"}, "pairs.jsonl", "judge"));
  for (const std::vector<std::string>& split :
       std::vector<std::vector<std::string>>{{}, {"--tp", "2"}, {"--tp", "2", "--pp", "2"}}) {
    std::vector<std::string> there = {"convert", "judge", "mcore",       "--to",
                                      "mcore",   "--orm", "--overwrite", "--check"};
    there.insert(there.end(), split.begin(), split.end());
    ok(there);
    ok({"convert", "mcore", "back", "--to", "hf", "--overwrite"});
    EXPECT_EQ(content_of(*this / "back" / "model.safetensors"),
              content_of(*this / "judge" / "model.safetensors"));
    const Json config = Json::parse(content_of(*this / "back" / "config.json"));
    EXPECT_EQ(config["architectures"], Json::array({"Qwen2ForSequenceClassification"}));
    EXPECT_EQ(config["id2label"].size(), 1u);
  }
  EXPECT_NEAR(reward_by("mcore"), reward_by("judge"), 1e-6);
  // The last stage has MindSpeed-LLM's head in place of the vocabulary's.
  for (const char* rank : {"mp_rank_00_001", "mp_rank_01_001"}) {
    const std::string file =
        content_of(*this / "mcore" / "iter_0000001" / rank / "model_optim_rng.pt");
    EXPECT_THAT(file, HasSubstr("rm_head.weight"));
    EXPECT_THAT(file, HasSubstr("rm_head.bias"));
    EXPECT_THAT(file, testing::Not(HasSubstr("output_layer.weight")));
  }
  // A head in a file of its own goes there too.
  write("rm.yaml", "stage: rm\ndo_train: true\nfinetuning_type: full\n");
  ok(line({"train", "rm.yaml"}, "pairs.jsonl", "factory"));
  ok({"convert", "factory", "of_factory", "--to", "mcore", "--tp", "2"});
  EXPECT_NEAR(reward_by("of_factory"), reward_by("factory"), 1e-6);
  expect_error(run({"convert", good("model").string(), "x", "--to", "mcore", "--orm"}), 2,
               {"[--orm]", "no head of a reward model"});
  expect_error(run({"convert", "judge", "x", "--to", "legacy"}), 4, {"a reward model"});
  expect_error(run({"infer", "--model", "mcore", "--prompt", "hi"}), 4,
               {"a reward model", "--reward_model"});
}

}  // namespace
}  // namespace danlu::test
