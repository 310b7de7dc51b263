// Latent attention and DeepSeek's experts, as config.json says them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "arch/attention_size.h"
#include "arch/prediction.h"
#include "base/error.h"
#include "base/file.h"
#include "support/shared_data.h"
#include "support/throws.h"
#include "support/tiny_model.h"

namespace danlu::arch {
namespace latent_config_test {

using test::error_of;
using testing::HasSubstr;

std::filesystem::path golden(const std::string& name) {
  return test::shared_dir() / "golden" / "moe" / name;
}

TEST(LatentConfig, BothFormsOfAFileSayTheSame) {
  DANLU_REQUIRES_SHARED();
  for (const char* name : {"deepseek_v2_lite", "deepseek_v2", "deepseek_v3"}) {
    SCOPED_TRACE(name);
    const ModelConfig a = load_model_config(golden(name) / "config.json"),
                      b = load_model_config(golden(name) / "config_v5.json");
    ASSERT_TRUE(a.latent && b.latent);
    EXPECT_EQ(a.latent->q_rank, b.latent->q_rank);
    EXPECT_EQ(a.latent->kv_rank, b.latent->kv_rank);
    EXPECT_EQ(a.latent->v_dim, b.latent->v_dim);
    EXPECT_EQ(a.head_dim, b.head_dim);
    EXPECT_EQ(a.attention_scale, b.attention_scale);
    EXPECT_EQ(a.rope.is_pairwise, b.rope.is_pairwise);
    EXPECT_EQ(a.rope.factor, b.rope.factor);
    EXPECT_EQ(a.experts.groups, b.experts.groups);
    EXPECT_EQ(a.experts.weight_scale, b.experts.weight_scale);
    EXPECT_EQ(a.experts.prediction_layers, b.experts.prediction_layers);
  }
}

TEST(LatentConfig, DeepSeekV3sNumbers) {
  DANLU_REQUIRES_SHARED();
  const ModelConfig c = load_model_config(golden("deepseek_v3"));
  EXPECT_EQ(c.head_dim, 10 + 8);
  EXPECT_EQ(value_dim(c), 12);
  EXPECT_EQ(rotated_dims(c), 8);
  EXPECT_TRUE(c.rope.is_pairwise);
  const double temperature = 0.1 * std::log(40.0) + 1;
  EXPECT_DOUBLE_EQ(c.attention_scale, temperature * temperature / std::sqrt(18.0));
  EXPECT_EQ(kept_of_token(c).elements(), 16 + 8);
  const ExpertConfig& e = c.experts;
  EXPECT_EQ(e.count, 8);
  EXPECT_EQ(e.per_token, 3);
  EXPECT_EQ(e.ffn_size, 24);
  EXPECT_EQ(e.shared_ffn_size, 24);
  EXPECT_THAT(e.sparse_layer, testing::ElementsAre(false, true, true));
  EXPECT_EQ(e.score, RouterScore::kSigmoid);
  EXPECT_TRUE(e.has_choice_bias && e.sums_two_of_group && e.norm_topk);
  EXPECT_EQ(e.groups, 4);
  EXPECT_EQ(e.chosen_groups, 2);
  EXPECT_EQ(e.weight_scale, 2.5);
  EXPECT_EQ(e.prediction_layers, 1);
  EXPECT_TRUE(is_of_prediction_layer(c, "model.layers.3.eh_proj.weight"));
  EXPECT_FALSE(is_of_prediction_layer(c, "model.layers.2.eh_proj.weight"));
  EXPECT_FALSE(is_of_prediction_layer(c, "model.layers.4.eh_proj.weight"));
}

TEST(LatentConfig, DeepSeekV2sNumbers) {
  DANLU_REQUIRES_SHARED();
  const ModelConfig lite = load_model_config(golden("deepseek_v2_lite")),
                    full = load_model_config(golden("deepseek_v2"));
  EXPECT_EQ(lite.latent->q_rank, 0);
  EXPECT_EQ(lite.experts.groups, 1);
  EXPECT_EQ(lite.experts.shared_ffn_size, 2 * 28);
  EXPECT_EQ(lite.experts.weight_scale, 1.0);
  EXPECT_EQ(lite.experts.aux_loss_coef, 0.001);
  EXPECT_FALSE(lite.experts.has_choice_bias);
  EXPECT_EQ(full.latent->q_rank, 28);
  EXPECT_EQ(full.experts.groups, 4);
  EXPECT_EQ(full.experts.chosen_groups, 2);
  EXPECT_FALSE(full.experts.sums_two_of_group);
  EXPECT_EQ(full.experts.weight_scale, 4.0);
  EXPECT_DOUBLE_EQ(full.attention_scale, 1 / std::sqrt(18.0));  // no yarn
}

TEST(LatentConfig, LayersWithoutExpertsMakeADenseModel) {
  Json json = test::tiny_config("deepseek_v3");
  json.update({{"n_routed_experts", 8}, {"first_k_dense_replace", 2}});
  EXPECT_FALSE(parse_model_config(json, "config").has_experts());
}

TEST(LatentConfig, WhatIsImpossibleIsNamed) {
  const auto with = [](const Json& changes) {
    Json json = test::tiny_config("deepseek_v3");
    json.update({{"n_routed_experts", 8},
                 {"num_experts_per_tok", 2},
                 {"moe_intermediate_size", 24},
                 {"n_group", 4},
                 {"topk_group", 2}});
    json.update(changes);
    return error_of<ModelError>([&] { (void)parse_model_config(json, "config"); });
  };
  EXPECT_THAT(with({{"qk_rope_head_dim", 5}}), HasSubstr("qk_rope_head_dim must be even, got 5"));
  EXPECT_THAT(with({{"kv_lora_rank", nullptr}}), HasSubstr("kv_lora_rank"));
  EXPECT_THAT(with({{"topk_method", "greedy"}}), HasSubstr("topk_method \"greedy\""));
  EXPECT_THAT(with({{"scoring_func", "softmax"}}), HasSubstr("scoring_func \"softmax\""));
  EXPECT_THAT(with({{"n_group", 3}}), HasSubstr("n_routed_experts=8 are no n_group=3"));
  EXPECT_THAT(
      with({{"quantization_config", {{"quant_method", "fp8"}, {"weight_block_size", {64, 64}}}}}),
      HasSubstr("quantised weights (fp8, weight_block_size [64,64])"));
}

}  // namespace latent_config_test
}  // namespace danlu::arch
