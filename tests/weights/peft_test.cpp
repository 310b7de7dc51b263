// PEFT adapters: adapter_config.json, tensor names, and which modules an adapter touches.
#include "weights/lora/peft.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "support/shared_data.h"
#include "support/throws.h"
#include "support/tiny_model.h"
#include "weights/bytes.h"

namespace danlu::weights {
namespace {

using test::error_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

PeftConfig parse(Json json) {
  if (!json.contains("peft_type")) json["peft_type"] = "LORA";
  return parse_peft_config(json, "adapter_config.json");
}
std::string config_error(Json json) {
  return error_of<ModelError>([&] { parse(std::move(json)); });
}

constexpr const char* kModule = "model.layers.3.self_attn.q_proj";

TEST(PeftConfig, ReadsTheGoldenAdapter) {
  DANLU_REQUIRES_SHARED();
  const auto directory = test::shared_dir() / "golden" / "lora_llama";
  const PeftConfig config = load_peft_config(directory);
  EXPECT_EQ(config.rank, 8);
  EXPECT_EQ(config.alpha, 16);
  EXPECT_EQ(config.scale_of(kModule), 2.0);
  EXPECT_EQ(config.target_modules.size(), 7u);
  EXPECT_EQ(config.base_model, "../llama");
  const auto source = open_weights(directory);
  for (const TensorInfo& info : source->tensors()) {
    const auto name = parse_adapter_name(info.name);
    ASSERT_TRUE(name) << info.name;
    EXPECT_TRUE(name->part == AdapterPart::kLoraA || name->part == AdapterPart::kLoraB);
    EXPECT_TRUE(peft_targets(config, name->module)) << name->module;
    EXPECT_EQ(adapter_tensor_name(name->module, name->part), info.name);
  }
}

TEST(PeftConfig, WritingTheGoldenBackGivesTheSameKeysAndValues) {
  DANLU_REQUIRES_SHARED();
  const Json original =
      read_json_file(test::shared_dir() / "golden" / "lora_llama" / "adapter_config.json");
  Json written = peft_config_json(parse(original));
  EXPECT_EQ(written["exclude_modules"], nullptr);  // a key of later versions
  written.erase("exclude_modules");
  EXPECT_EQ(written.dump(2), original.dump(2));
}

TEST(PeftConfig, AFreshConfigCarriesEveryKeyPeftReads) {
  PeftConfig config;
  config.rank = 4;
  config.alpha = 2.5;
  config.target_modules = {"q_proj"};
  config.rank_pattern = {{"v_proj", 2}};
  const Json json = peft_config_json(config);
  for (const char* key : {"alpha_pattern",
                          "auto_mapping",
                          "base_model_name_or_path",
                          "bias",
                          "fan_in_fan_out",
                          "inference_mode",
                          "init_lora_weights",
                          "layer_replication",
                          "layers_pattern",
                          "layers_to_transform",
                          "loftq_config",
                          "lora_alpha",
                          "lora_dropout",
                          "megatron_config",
                          "megatron_core",
                          "modules_to_save",
                          "peft_type",
                          "r",
                          "rank_pattern",
                          "revision",
                          "target_modules",
                          "task_type",
                          "use_dora",
                          "use_rslora"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  EXPECT_EQ(json["lora_alpha"], 2.5);
  EXPECT_EQ(json["inference_mode"], true);
  const PeftConfig again = parse(json);
  EXPECT_EQ(again.rank_of("model.layers.0.self_attn.v_proj"), 2);
  EXPECT_EQ(again.rank_of(kModule), 4);
}

TEST(PeftConfig, AdaptersOfForeignModelsAreReadWithoutFuss) {
  DANLU_REQUIRES_SHARED();
  for (const char* name : {"lora_gpt2_anirudh", "lora_lab08"}) {
    const auto directory = test::shared_dir() / "data" / "models" / name;
    const PeftConfig config = load_peft_config(directory);
    size_t adapted = 0;
    const auto source = open_weights(directory);
    for (const TensorInfo& info : source->tensors()) {
      const auto parsed = parse_adapter_name(info.name);
      ASSERT_TRUE(parsed) << info.name;
      adapted += parsed->part == AdapterPart::kLoraA && peft_targets(config, parsed->module);
    }
    EXPECT_GT(adapted, 0u) << name;
  }
}

TEST(PeftTargets, AListMatchesWholeNamesOrTheirEndAfterADot) {
  const PeftConfig config = parse({{"target_modules", {"q_proj", "mlp.up_proj"}}});
  EXPECT_TRUE(peft_targets(config, kModule));
  EXPECT_TRUE(peft_targets(config, "q_proj"));
  EXPECT_TRUE(peft_targets(config, "model.layers.0.mlp.up_proj"));
  EXPECT_FALSE(peft_targets(config, "model.layers.0.self_attn.xq_proj"));
  EXPECT_FALSE(peft_targets(config, "model.layers.0.other.up_proj"));
  EXPECT_FALSE(peft_targets(config, "model.layers.0.self_attn.q_proj.base_layer"));
}

TEST(PeftTargets, AStringIsARegexOverTheWholeName) {
  const PeftConfig config = parse({{"target_modules", R"(.*\.[0-2]\.self_attn\.(q|v)_proj)"}});
  EXPECT_TRUE(peft_targets(config, "model.layers.2.self_attn.v_proj"));
  EXPECT_FALSE(peft_targets(config, kModule));
  EXPECT_FALSE(peft_targets(config, "model.layers.2.self_attn.v_proj.x"));
}

TEST(PeftTargets, AllLinearLeavesTheHeadOut) {
  const PeftConfig config = parse({{"target_modules", "all-linear"}});
  EXPECT_TRUE(peft_targets(config, kModule, true, false));
  EXPECT_FALSE(peft_targets(config, "lm_head", true, true));
  EXPECT_FALSE(peft_targets(config, "model.embed_tokens", false, false));
}

TEST(PeftTargets, ExcludesWin) {
  EXPECT_FALSE(peft_targets(
      parse({{"target_modules", {"q_proj"}}, {"exclude_modules", {"q_proj"}}}), kModule));
  EXPECT_FALSE(peft_targets(
      parse({{"target_modules", "all-linear"}, {"exclude_modules", ".*q_proj"}}), kModule));
  EXPECT_TRUE(peft_targets(parse({{"target_modules", {"q_proj"}}, {"exclude_modules", {"k_proj"}}}),
                           kModule));
}

TEST(PeftTargets, LayersToTransformPickLayersByIndex) {
  const PeftConfig config =
      parse({{"target_modules", {"q_proj"}}, {"layers_to_transform", {3, 5}}});
  EXPECT_TRUE(peft_targets(config, kModule));
  EXPECT_FALSE(peft_targets(config, "model.layers.4.self_attn.q_proj"));
  EXPECT_FALSE(peft_targets(config, "model.embed.q_proj"));
  const PeftConfig one = parse(
      {{"target_modules", {"q_proj"}}, {"layers_to_transform", 4}, {"layers_pattern", "layers"}});
  EXPECT_TRUE(peft_targets(one, "model.layers.4.self_attn.q_proj"));
  EXPECT_FALSE(peft_targets(one, "model.blocks.4.self_attn.q_proj"));
}

TEST(PeftScale, PatternsAndRsLora) {
  const PeftConfig config = parse({{"r", 4},
                                   {"lora_alpha", 8},
                                   {"rank_pattern", {{"q_proj", 16}}},
                                   {"alpha_pattern", {{R"(layers\.3\..*)", 32}}}});
  EXPECT_EQ(config.rank_of(kModule), 16);
  EXPECT_EQ(config.scale_of(kModule), 2.0);                            // 32 / 16
  EXPECT_EQ(config.scale_of("model.layers.0.self_attn.k_proj"), 2.0);  // 8 / 4
  const PeftConfig rs = parse({{"r", 16}, {"lora_alpha", 8}, {"use_rslora", true}});
  EXPECT_EQ(rs.scale_of(kModule), 2.0);  // 8 / sqrt(16)
}

TEST(PeftNames, EveryPartOfTheFileFormat) {
  const auto is = [](const char* tensor, const char* module, AdapterPart part) {
    const auto name = parse_adapter_name(tensor);
    ASSERT_TRUE(name) << tensor;
    EXPECT_EQ(name->module, module);
    EXPECT_EQ(name->part, part);
    EXPECT_EQ(adapter_tensor_name(module, part), tensor);
  };
  is("base_model.model.model.layers.0.mlp.up_proj.lora_A.weight", "model.layers.0.mlp.up_proj",
     AdapterPart::kLoraA);
  is("base_model.model.lm_head.lora_B.weight", "lm_head", AdapterPart::kLoraB);
  is("base_model.model.model.embed_tokens.lora_embedding_A", "model.embed_tokens",
     AdapterPart::kEmbeddingA);
  is("base_model.model.model.embed_tokens.lora_embedding_B", "model.embed_tokens",
     AdapterPart::kEmbeddingB);
  is("base_model.model.a.lora_magnitude_vector", "a", AdapterPart::kMagnitude);
  is("base_model.model.lm_head.weight", "lm_head", AdapterPart::kSavedModule);
  is("base_model.model.a.q_proj.bias", "a.q_proj", AdapterPart::kBias);
  EXPECT_FALSE(parse_adapter_name("model.layers.0.mlp.up_proj.weight"));
  EXPECT_FALSE(parse_adapter_name("base_model.model.lora_alpha"));
}

TEST(PeftErrors, SayWhichKeyAndWhy) {
  EXPECT_THAT(config_error({{"peft_type", "IA3"}}),
              HasSubstr("peft_type must be LORA, got \"IA3\""));
  EXPECT_THAT(config_error({{"peft_type", nullptr}}),
              HasSubstr("peft_type must be LORA, got \"\""));
  EXPECT_THAT(config_error({{"r", 0}}), HasSubstr("r must be a whole number from 1, got 0"));
  EXPECT_THAT(config_error({{"r", 2.5}}), HasSubstr("got 2.5"));
  EXPECT_THAT(config_error({{"r", "8"}}), HasSubstr("r must be a number, got \"8\""));
  EXPECT_THAT(config_error({{"lora_dropout", 1.0}}),
              HasSubstr("lora_dropout must be in [0, 1), got 1"));
  EXPECT_THAT(config_error({{"lora_alpha", 1e308}}),
              HasSubstr("lora_alpha must be a number that fp32 can hold, got 1e+308"));
  EXPECT_THAT(config_error({{"alpha_pattern", {{"q", -1e39}}}}),
              HasSubstr("alpha_pattern of q must be a number that fp32 can hold, got -1e+39"));
  EXPECT_THAT(config_error({{"bias", "some"}}), HasSubstr("bias must be none, all or lora_only"));
  EXPECT_THAT(config_error({{"target_modules", 3}}),
              HasSubstr("target_modules must be a string or a list of strings"));
  EXPECT_THAT(config_error({{"target_modules", "(q"}}),
              HasSubstr("'(q' is not a valid regular expression: missing closing parenthesis"));
  EXPECT_THAT(config_error({{"rank_pattern", {{"q", "x"}}}}),
              HasSubstr("rank_pattern must be an object of numbers"));
  EXPECT_THAT(config_error({{"rank_pattern", {{"q", 0}}}}),
              HasSubstr("rank_pattern of q must be a whole number from 1, got 0"));
  EXPECT_THAT(config_error({{"rank_pattern", {{"q", 8.5}}}}),
              HasSubstr("rank_pattern of q must be a whole number from 1, got 8.5"));
  EXPECT_THAT(config_error({{"rank_pattern", {{"q", 1e30}}}}),
              HasSubstr("rank_pattern of q must be a whole number from 1, got 1e+30"));
  EXPECT_EQ(parse({{"rank_pattern", {{"q", 4.0}}}}).rank_of("q"), 4);
  EXPECT_THAT(config_error({{"layers_to_transform", {1.5}}}),
              HasSubstr("layers_to_transform must be a whole number or a list of them"));
  EXPECT_THAT(config_error({{"use_qalora", true}}), HasSubstr("use_qalora must be unset"));
  EXPECT_THAT(config_error({{"trainable_token_indices", {1}}}),
              HasSubstr("trainable_token_indices must be unset"));
  const test::TemporaryDirectory directory;
  EXPECT_THAT(error_of<ModelError>([&] { load_peft_config(directory.path()); }),
              HasSubstr("no adapter_config.json"));
}

}  // namespace
}  // namespace danlu::weights
