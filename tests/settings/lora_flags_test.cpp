// Names of modules and parameters in flags, and LoRA flags beside an adapter, against what the
// files say; no weight is read for it.
#include <gmock/gmock.h>

#include "settings/option_lines.h"
#include "settings/options/module_names.h"
#include "support/tiny_model.h"
#include "weights/lora/peft.h"

namespace danlu::settings::options_test {

using testing::HasSubstr;

class LoraFlags : public TrainOptions {
 protected:
  /// An adapter of rank 4, alpha 8 on q_proj and v_proj; `change` edits its adapter_config.json.
  std::vector<std::string> adapter(const Json& change = Json::object()) const {
    Json json = {{"peft_type", "LORA"},
                 {"r", 4},
                 {"lora_alpha", 8},
                 {"lora_dropout", 0.0},
                 {"use_rslora", false},
                 {"use_dora", false},
                 {"target_modules", {"v_proj", "q_proj"}}};
    json.update(change);
    fs::create_directories(directory_ / "adapter");
    write_json_file(directory_ / "adapter" / "adapter_config.json", json);
    return {"--adapters", (directory_ / "adapter").string()};
  }
  std::string beside_adapter(std::vector<std::string> words,
                             const Json& change = Json::object()) const {
    for (const std::string& word : adapter(change)) words.push_back(word);
    return refusal("sft", words);
  }
};

TEST_F(LoraFlags, FlagsThatDisagreeWithTheAdapterShowBothValues) {
  const std::string text = beside_adapter({"--lora_r", "16", "--lora_alpha", "8"});
  EXPECT_THAT(text, HasSubstr("adapter/adapter_config.json: --lora_r 16 (adapter: 4) | "));
  EXPECT_THAT(beside_adapter({"--lora_alpha", "32", "--lora_dropout", "0.1"}),
              HasSubstr("--lora_alpha 32 (adapter: 8), --lora_dropout 0.1 (adapter: 0)"));
  EXPECT_THAT(beside_adapter({"--use_dora"}), HasSubstr("--use_dora true (adapter: false)"));
  EXPECT_THAT(beside_adapter({"--rslora", "false"}, {{"use_rslora", true}}),
              HasSubstr("--rslora false (adapter: true)"));
  EXPECT_THAT(beside_adapter({"--target_modules", "k_proj,q_proj"}),
              HasSubstr("--target_modules k_proj,q_proj (adapter: q_proj,v_proj)"));
  EXPECT_THAT(beside_adapter({"--modules_to_save", "lm_head"}),
              HasSubstr("--modules_to_save lm_head (adapter: none)"));
  std::ofstream(directory_ / "run.yaml") << "lora_rank: 2\n";
  EXPECT_THAT(beside_adapter({(directory_ / "run.yaml").string()}),
              HasSubstr("run.yaml:1: lora_rank 2 (adapter: 4)"));
}

TEST_F(LoraFlags, FlagsThatAgreeAndFlagsNotGivenAreSilent) {
  EXPECT_EQ(beside_adapter({}), "(accepted)");
  EXPECT_EQ(beside_adapter({"--profile", "swift24"}), "(accepted)") << "rank 8 is the profile's";
  EXPECT_EQ(beside_adapter({"--lora_rank", "4", "--lora_alpha", "8.0", "--lora_target", "q_proj",
                            "v_proj", "--use_dora", "false"}),
            "(accepted)");
}

TEST_F(LoraFlags, TargetsAreComparedByTheLayersTheyChoose) {
  const Json all = {
      {"target_modules",
       {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}}};
  EXPECT_EQ(beside_adapter({"--lora_target", "all-linear"}, all), "(accepted)");
  EXPECT_EQ(beside_adapter({"--lora_target", ".*\\.(q|v)_proj"}), "(accepted)");
  EXPECT_THAT(beside_adapter({"--lora_target", "all"}), HasSubstr("(adapter: q_proj,v_proj)"));
}

TEST_F(LoraFlags, ATargetThatChoosesNothingNamesTheNearest) {
  EXPECT_THAT(refusal("sft", {"--lora_target", "q_prj", "v_proj"}),
              HasSubstr("--lora_target: target 'q_prj' matches no linear layer; there are: "
                        "down_proj, gate_proj, k_proj, o_proj, q_proj, up_proj, v_proj | did you "
                        "mean q_proj?"));
  EXPECT_THAT(refusal("sft", {"--target_modules", "W_pack", "--dry_run"}),
              HasSubstr("--target_modules: target 'W_pack' matches no linear layer"));
  EXPECT_THAT(refusal("sft", {"--lora_target", "(q_proj"}),
              HasSubstr("--lora_target: '(q_proj' is not a valid regular expression"));
  EXPECT_THAT(refusal("sft", {"--lora_target", "(.*)*(.*)*[xz]"}),
              HasSubstr("--lora_target: '(.*)*(.*)*[xz]' takes more than"));
  // PEFT takes a list's words literally.
  EXPECT_THAT(refusal("sft", {"--lora_target", "q_proj", ".*mlp.*"}),
              HasSubstr("--lora_target: target '.*mlp.*' matches no linear layer"));
  EXPECT_THAT(refusal("sft", {"--modules_to_save", "lmhead"}),
              HasSubstr("--modules_to_save: 'lmhead' matches no module"));
  for (const char* good : {"all-linear", "ALL", "self_attn.q_proj", ".*mlp.*", "DEFAULT"})
    EXPECT_EQ(refusal("sft", {"--lora_target", good}), "(accepted)") << good;
  EXPECT_EQ(refusal("sft", {"--tuner", "full", "--lora_target", "W_pack"}), "(accepted)");
}

TEST_F(LoraFlags, LoraFlagsBesideAnotherTunerAreTold) {
  EXPECT_THAT(notices("sft", {"--tuner", "full", "--lora_r", "8", "--use_dora"}),
              HasSubstr("notice: --lora_r, --use_dora have no effect with --tuner full"));
  EXPECT_EQ(notices("sft", {"--tuner", "full"}), "");
}

TEST_F(LoraFlags, DefaultTargetsAreThoseOfTheArchitecture) {
  const std::vector<std::string> qkv = {"q_proj", "k_proj", "v_proj"};
  EXPECT_EQ(with("sft", {"--lora_target_modules", "DEFAULT"}).lora.target_modules, qkv);
  EXPECT_EQ(with("sft", {"--profile", "swift24"}).lora.target_modules, qkv);
}

TEST_F(LoraFlags, AdaptersAreDescribedAsTheirFileWillBe) {
  const weights::PeftConfig all = with("sft", {"--lora_rank", "4"}).lora;
  EXPECT_EQ(weights::peft_config_json(all)["target_modules"], "all-linear");
  EXPECT_EQ(weights::peft_config_json(all)["r"], 4);
  const std::string pattern = ".*\\.(q|v)_proj";
  const weights::PeftConfig one = with("sft", {"--lora_target", pattern}).lora;
  EXPECT_EQ(weights::peft_config_json(one)["target_modules"], pattern);
  const weights::PeftConfig named = with("sft", {"--lora_target", "q_proj"}).lora;
  EXPECT_EQ(weights::peft_config_json(named)["target_modules"], Json::array({"q_proj"}));
  EXPECT_EQ(weights::peft_config_json(TrainConfig().lora)["lora_alpha"], 32);
}

TEST_F(LoraFlags, MegatronsLayersAreTranslated) {
  using Names = std::vector<std::string>;
  const Names all = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"};
  EXPECT_EQ(with("posttrain", {"--lora-r", "4", "--lora-target-modules", "linear_qkv",
                               "linear_proj", "linear_fc1", "linear_fc2"})
                .lora.target_modules,
            all);
  EXPECT_EQ(with("sft", {"--lora-target-modules", "query_key_value", "dense", "dense_h_to_4h",
                         "dense_4h_to_h"})
                .lora.target_modules,
            all);
  EXPECT_THAT(notices("sft", {"--lora-target-modules", "linear_fc1"}),
              HasSubstr("--lora-target-modules: linear_fc1 (gate_proj, up_proj)"));
}

TEST(LayersCalled, ExpertsHaveMegatronsLayersToo) {
  using Names = std::vector<std::string>;
  const auto called = [](const char* family, const char* word) {
    return layers_called(word, arch::parse_model_config(test::tiny_config(family), family));
  };
  EXPECT_EQ(called("mixtral", "linear_fc1"), (Names{"w1", "w3"}));
  EXPECT_EQ(called("mixtral", "linear_fc2"), Names{"w2"});
  EXPECT_EQ(called("qwen2_moe", "linear_fc1"), (Names{"gate_proj", "up_proj"}));
  EXPECT_EQ(called("llama4_text", "dense_4h_to_h"), Names{"down_proj"});
  EXPECT_EQ(called("mixtral", "linear_qkv"), (Names{"q_proj", "k_proj", "v_proj"}));
}

TEST_F(LoraFlags, AFreezePatternThatChoosesNothingIsRefused) {
  EXPECT_THAT(refusal("sft", {"--tuner", "freeze", "--freeze", "embed_token$"}),
              HasSubstr("[freeze] --freeze 'embed_token$' matches no parameter; names look like "
                        "'model.embed_tokens.weight'"));
  EXPECT_THAT(refusal("sft", {"--tuner", "freeze", "--freeze_parameters", "["}),
              HasSubstr("--freeze_parameters: '[' is not a valid regular expression"));
  EXPECT_THAT(refusal("sft", {"--tuner", "lora", "--freeze", "!norm"}),
              testing::HasSubstr("would be lost"));
  EXPECT_EQ(refusal("sft", {"--tuner", "freeze", "--freeze", "^model", "!layers\\.1\\."}),
            "(accepted)");
}

}  // namespace danlu::settings::options_test
