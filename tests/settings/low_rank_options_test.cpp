// --optim galore, apollo, adam_mini: whose defaults hold, and what is refused.
#include <gmock/gmock.h>

#include "settings/option_lines.h"

namespace danlu::settings::options_test {

using testing::ElementsAre;
using testing::IsEmpty;

TEST_F(TrainOptions, GaloreIsSwiftsUnlessALineIsAnothers) {
  EXPECT_FALSE(with("sft", {}).adamw.low_rank);
  EXPECT_TRUE(with("sft", {"--use_galore", "false"}).adamw.is_plain());
  const auto galore = [&](std::vector<std::string> words) {
    return with("sft", words).adamw.low_rank.value();
  };
  const LowRankConfig own = galore({"--tuner", "full", "--optimizer", "galore"});
  EXPECT_EQ(own.rank, 128);
  EXPECT_EQ(own.interval, 50);
  EXPECT_EQ(own.scale, 1);
  EXPECT_THAT(own.targets, IsEmpty());
  const LowRankConfig factory =
      galore({"--finetuning_type", "full", "--use_galore", "true", "--galore_target", "all"});
  EXPECT_EQ(factory.rank, 16);
  EXPECT_EQ(factory.interval, 200);
  EXPECT_EQ(factory.scale, 2);
  EXPECT_THAT(factory.targets, IsEmpty());
  const LowRankConfig trainer =
      galore({"--tuner", "full", "--optim", "galore_adamw", "--optim_target_modules", "attn", "mlp",
              "--optim_args", "rank=64, scale=0.5"});
  EXPECT_EQ(trainer.rank, 64);
  EXPECT_EQ(trainer.interval, 200);
  EXPECT_EQ(trainer.scale, 0.5);
  EXPECT_THAT(trainer.targets, ElementsAre("attn", "mlp"));
}

TEST_F(TrainOptions, ApolloIsLlamaFactorys) {
  const LowRankConfig apollo =
      with("sft", {"--finetuning_type", "full", "--use_apollo", "true", "--apollo_scale_type",
                   "tensor", "--apollo_proj", "svd", "--apollo_scale_front", "true"})
          .adamw.low_rank.value();
  EXPECT_EQ(apollo.method, LowRankConfig::Method::kApollo);
  EXPECT_EQ(apollo.rank, 16);
  EXPECT_EQ(apollo.interval, 200);
  EXPECT_EQ(apollo.scale, 32);
  EXPECT_FALSE(apollo.draws);
  EXPECT_TRUE(apollo.has_one_factor);
  EXPECT_TRUE(apollo.scales_first);
}

TEST_F(TrainOptions, NamesOfSwiftsOptimizersThatAreRatesAreAdamWs) {
  for (const char* name : {"lorap", "multimodal"})
    EXPECT_TRUE(with("sft", {"--optimizer", name}).adamw.is_plain()) << name;
}

TEST_F(TrainOptions, AdamMiniHasASecondMomentForAHead) {
  EXPECT_TRUE(with("sft", {"--use_adam_mini", "true"}).adamw.mini);
  const auto blocks = [](const char* name, std::vector<int64_t> shape, arch::Role role) {
    arch::ParamSpec spec{};
    spec.name = name;
    spec.shape = std::move(shape);
    spec.role = role;
    return mini_blocks({.head_size = 4}, spec);
  };
  using arch::Role;
  EXPECT_EQ(blocks("model.layers.0.self_attn.q_proj.weight", {12, 8}, Role::kQ), 3);
  EXPECT_EQ(blocks("model.layers.0.self_attn.v_proj.weight", {12, 8}, Role::kV), 1);
  EXPECT_EQ(blocks("model.layers.0.input_layernorm.weight", {8}, Role::kAttentionNorm), 1);
  EXPECT_EQ(blocks("model.embed_tokens.weight", {12, 8}, Role::kEmbedding), 0);
  EXPECT_EQ(blocks("lm_head.weight", {12, 8}, Role::kHead), 0);
  EXPECT_EQ(blocks("base_model.model.lm_head.lora_A.weight", {2, 8}, Role::kHead), 1);
}

}  // namespace danlu::settings::options_test
