// Qwen3-Next and Qwen3.5: which layers have linear attention, what of the hub's config.json is the
// text model's, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "arch/gated_delta.h"
#include "arch/shard.h"
#include "base/error.h"
#include "support/throws.h"
#include "support/tiny_model.h"

namespace danlu::arch {
namespace hybrid_config_test {

using testing::HasSubstr;

ModelConfig parsed(const Json& json) { return parse_model_config(json, "test"); }

Json with(const std::string& family, const Json& changes) {
  Json json = test::tiny_config(family);
  for (const auto& [key, value] : changes.items()) {
    if (value.is_null()) {
      json.erase(key);
    } else {
      json[key] = value;
    }
  }
  return json;
}

TEST(HybridConfig, EveryFourthLayerHasKeysUnlessLayerTypesSaysOtherwise) {
  const ModelConfig model =
      parsed(with("qwen3_5_text", {{"layer_types", nullptr}, {"num_hidden_layers", 8}}));
  std::vector<int64_t> with_keys;
  for (int64_t layer = 0; layer < 8; ++layer)
    if (!gated_delta_of(model, layer)) with_keys.push_back(layer);
  EXPECT_EQ(with_keys, (std::vector<int64_t>{3, 7}));
  EXPECT_EQ(count_key_layers(model), 2);
  EXPECT_EQ(place_of_key_layer(model, 7), 1);
  const ModelConfig other = parsed(test::tiny_config("qwen3_5_text"));
  EXPECT_TRUE(gated_delta_of(other, 0));
  EXPECT_FALSE(gated_delta_of(other, 1));
  EXPECT_FALSE(has_gated_delta(parsed(test::tiny_config("qwen3"))));
  EXPECT_EQ(count_key_layers(parsed(test::tiny_config("qwen3"))), 2);
}

TEST(HybridConfig, TheTextPartOfTheHubsConfigIsTheTextModels) {
  Json text = test::tiny_config("qwen3_5_moe_text");
  for (const char* key : {"architectures", "intermediate_size", "eos_token_id"}) text.erase(key);
  text["tie_word_embeddings"] = false;
  text["rope_parameters"] = {{"mrope_interleaved", true},
                             {"mrope_section", {11, 11, 10}},
                             {"rope_type", "default"},
                             {"rope_theta", 1e7},
                             {"partial_rotary_factor", 0.5}};
  const ModelConfig model = parsed({{"model_type", "qwen3_5_moe"},
                                    {"architectures", {"Qwen3_5MoeForConditionalGeneration"}},
                                    {"text_config", text},
                                    {"vision_config", Json::object()},
                                    {"tie_word_embeddings", true},
                                    {"eos_token_id", 7}});
  EXPECT_EQ(model.family, "qwen3_5_moe_text");
  EXPECT_EQ(model.rope.rotated_dims, 4);
  EXPECT_EQ(model.rope.theta, 1e7);
  EXPECT_EQ(model.eos_ids, std::vector<int64_t>{7});
  EXPECT_TRUE(model.tie_embeddings);
  EXPECT_TRUE(model.experts.norm_topk);
  EXPECT_EQ(model.raw["architectures"], Json({"Qwen3_5MoeForCausalLM"}));
  EXPECT_TRUE(model.raw["rope_parameters"].contains("mrope_section"));
  EXPECT_FALSE(model.raw.contains("intermediate_size"));
}

TEST(HybridConfig, WhatCannotBeIsNamed) {
  const auto error = [](const std::string& family, const Json& changes) {
    return test::error_of<ModelError>([&] { parsed(with(family, changes)); });
  };
  EXPECT_THAT(error("qwen3_next", {{"layer_types", {"linear_attention", "mamba"}}}),
              HasSubstr("got mamba"));
  EXPECT_THAT(error("qwen3_next", {{"layer_types", {"linear_attention"}}}),
              HasSubstr("one entry per layer (2), got 1"));
  EXPECT_THAT(error("qwen3_5_text", {{"linear_num_key_heads", 3}}),
              HasSubstr("linear_num_key_heads=3 must divide linear_num_value_heads=4"));
  EXPECT_THAT(error("qwen3_5_text", {{"attn_output_gate", false}}), HasSubstr("attn_output_gate"));
}

TEST(HybridConfig, HeadsAndTokensAreNotDivided) {
  const ModelConfig model = parsed(test::tiny_config("qwen3_next"));
  EXPECT_NO_THROW(require_divides(model, 1));
  EXPECT_NO_THROW(require_whole_sequences(model, 1));
  EXPECT_THAT(test::error_of<UsageError>([&] { require_divides(model, 2); }),
              HasSubstr("has linear attention"));
  EXPECT_THAT(test::error_of<UsageError>([&] { require_whole_sequences(model, 2); }),
              HasSubstr("has linear attention"));
}

TEST(HybridConfig, AStateIsAMatrixOfEachHeadAndTheLastRows) {
  // 4 heads of 6 by 5 in f32, 3 rows of 2 * 12 + 20 channels in bf16.
  EXPECT_EQ(state_bytes(parsed(test::tiny_config("qwen3_5_text")), 2), 4 * 4 * 6 * 5 + 2 * 3 * 44);
  EXPECT_EQ(state_bytes(parsed(test::tiny_config("qwen3")), 2), 0);
}

}  // namespace hybrid_config_test
}  // namespace danlu::arch
