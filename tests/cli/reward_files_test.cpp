// Reward models in files: merged, and on their way to MindSpeed-LLM's and back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <utility>

#include "cli/preference_lines.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

/// Header and data of a safetensors file.
std::pair<Json, std::string> parts_of(const std::string& file) {
  uint64_t size = 0;
  std::memcpy(&size, file.data(), sizeof size);
  return {Json::parse(file.substr(sizeof size, size)), file.substr(sizeof size + size)};
}

std::string as_one_file(const std::string& one, const std::string& other) {
  auto [header, data] = parts_of(one);
  const auto [more, behind] = parts_of(other);
  for (const auto& [name, tensor] : more.items()) {
    if (name == "__metadata__") continue;
    header[name] = tensor;
    for (Json& offset : header[name]["data_offsets"]) offset = offset.get<size_t>() + data.size();
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t size = text.size();
  return std::string(reinterpret_cast<const char*>(&size), sizeof size) + text + data + behind;
}

class RewardFiles : public PreferenceLines {
 protected:
  /// The mean score that it gives to the answers of the same policy.
  double reward_by(const std::string& judge) const {
    const std::string to = "drawn_by_" + judge;
    ok(line({"rlhf", "--rlhf_type", "grpo"}, "pairs.jsonl", to,
            {"--reward_model", judge, "--num_generations", "2", "--max_completion_length", "8",
             "--tuner", "full", "--overwrite_output_dir", "--max_steps", "1"}));
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

/// TRL's save_pretrained leaves the head among a model's weights, and beside an adapter in a file
/// that is called as a model's.
TEST_F(RewardFiles, HeadsWhereTrlLeavesThem) {
  write("rm.yaml", "stage: rm\ndo_train: true\nfinetuning_type: full\n");
  ok(line({"train", "rm.yaml"}, "pairs.jsonl", "factory"));
  write("lora.yaml", "stage: rm\ndo_train: true\nfinetuning_type: lora\n");
  ok(line({"train", "lora.yaml"}, "pairs.jsonl", "adapters"));
  for (const char* run : {"factory", "adapters"}) {
    const std::string to = std::string("trl_") + run;
    fs::create_directory(*this / to);
    for (const char* name :
         {"config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json",
          "adapter_config.json", "adapter_model.safetensors"}) {
      if (fs::exists(*this / run / name)) fs::copy(*this / run / name, *this / to / name);
    }
  }
  fs::copy(*this / "adapters" / "value_head.safetensors",
           *this / "trl_adapters" / "pytorch_model.bin");
  write("trl_factory/model.safetensors",
        as_one_file(content_of(*this / "factory" / "model.safetensors"),
                    content_of(*this / "factory" / "value_head.safetensors")));
  EXPECT_NEAR(reward_by("trl_factory"), reward_by("factory"), 1e-6);
  EXPECT_NEAR(reward_by("trl_adapters"), reward_by("adapters"), 1e-6);
  // It answers as well, with the head of the vocabulary that it has.
  EXPECT_THAT(ok({"infer", "--model", "trl_factory", "--prompt", "a", "--max_new_tokens", "1"}).err,
              HasSubstr("v_head, a head that gives numbers, lies among its weights"));
  expect_error(run({"convert", "trl_factory", "x", "--to", "hf"}), 4,
               {"lies among its weights and would be lost", "--to mcore"});
  ok({"convert", "trl_factory", "mcore", "--to", "mcore"});
  EXPECT_NEAR(reward_by("mcore"), reward_by("factory"), 1e-6);
  ok({"merge", "--adapters", "trl_adapters", "--output", "merged"});
  EXPECT_EQ(content_of(*this / "merged" / "value_head.bin"),
            content_of(*this / "adapters" / "value_head.safetensors"));
  EXPECT_NEAR(reward_by("merged"), reward_by("adapters"), 1e-5);
}

TEST_F(RewardFiles, ARewardModelGoesToMindSpeedAndBack) {
  ok(line({"rlhf", "--rlhf_type", "rm", "--tuner", "full"}, "pairs.jsonl", "judge"));
  EXPECT_THAT(ok({"inspect", "judge"}).out, HasSubstr("qwen2 (Qwen2ForSequenceClassification)"));
  for (const std::vector<std::string>& split :
       std::vector<std::vector<std::string>>{{}, {"--tp", "2", "--pp", "2"}}) {
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
  EXPECT_THAT(ok({"infer", "--model", "mcore", "--prompt", "hi"}).err, HasSubstr("mean reward"));
}

}  // namespace
}  // namespace danlu::test
