// --optim muon: whose defaults hold, and what is refused.
#include <gmock/gmock.h>

#include "settings/option_lines.h"

namespace danlu::settings::options_test {

using testing::HasSubstr;
using testing::Not;

TEST_F(TrainOptions, MuonIsMoonlightsUnlessALineIsMegatrons) {
  EXPECT_FALSE(with("sft", {}).adamw.muon);
  EXPECT_FALSE(with("sft", {"--use_muon", "false"}).adamw.muon);
  const MuonConfig own = with("sft", {"--optim", "muon"}).adamw.muon.value();
  EXPECT_EQ(own.momentum, 0.95);
  EXPECT_TRUE(own.nesterov);
  EXPECT_EQ(own.coefficients, "simple");
  EXPECT_EQ(own.extra_scale, 0.2);
  const MuonConfig megatrons =
      with("sft", {"--optimizer", "muon", "--tensor_model_parallel_size", "1", "--save_safetensors",
                   "true", "--muon_use_nesterov", "true"})
          .adamw.muon.value();
  EXPECT_EQ(megatrons.momentum, 0.9);
  EXPECT_TRUE(megatrons.nesterov);
  EXPECT_EQ(megatrons.coefficients, "quintic");
  EXPECT_EQ(megatrons.extra_scale, 1);
  const MuonConfig mindspeeds =
      with("posttrain", {"--optimizer", "muon", "--muon-scale-mode", "unit_rms_norm",
                         "--muon-num-ns-steps", "10", "--muon-fp32-matmul-prec", "high"})
          .adamw.muon.value();
  EXPECT_EQ(mindspeeds.momentum, 0.95);
  EXPECT_FALSE(mindspeeds.nesterov);
  EXPECT_EQ(mindspeeds.scale_mode, "unit_rms_norm");
  EXPECT_EQ(mindspeeds.num_steps, 10);
}

TEST_F(TrainOptions, MuonOfMegatronsLinesSaysThatMatricesAreWhole) {
  const ScopedVariable rank("RANK", "0"), world("WORLD_SIZE", "2"), local("LOCAL_WORLD_SIZE", "2"),
      address("MASTER_ADDR", "127.0.0.1"), port("MASTER_PORT", "29500");
  const auto said = [&](const char* cut, const std::vector<std::string>& more) {
    return notices("posttrain", std::vector<std::string>{"--optimizer", "muon",
                                                         "--tensor-model-parallel-size", cut} +
                                    more);
  };
  EXPECT_THAT(said("2", {}), HasSubstr("blockwise"));
  EXPECT_THAT(said("1", {}), Not(HasSubstr("blockwise")));
  EXPECT_THAT(said("2", {"--muon-tp-mode", "duplicated"}), Not(HasSubstr("blockwise")));
}

TEST_F(TrainOptions, DistMuonSharesItsState) {
  EXPECT_THAT(notices("sft", {"--optim", "dist_muon"}), HasSubstr("nobody to share it with"));
  EXPECT_THAT(refusal("sft", {"--optim", "dist_muon", "--shard", "zero3"}),
              HasSubstr("--optim dist_muon means"));
}

TEST_F(TrainOptions, MuonTakesMatricesOfLayers) {
  const auto takes = [](const char* name, std::vector<int64_t> shape, arch::Role role) {
    arch::ParamSpec spec{};
    spec.name = name;
    spec.shape = std::move(shape);
    spec.role = role;
    return takes_muon(spec);
  };
  using arch::Role;
  EXPECT_TRUE(takes("model.layers.0.self_attn.q_proj.weight", {8, 8}, Role::kQ));
  EXPECT_TRUE(takes("model.layers.0.mlp.experts.3.down_proj.weight", {8, 4}, Role::kExpertDown));
  EXPECT_TRUE(
      takes("base_model.model.model.layers.0.mlp.up_proj.lora_A.weight", {2, 8}, Role::kUp));
  EXPECT_FALSE(takes("model.layers.0.input_layernorm.weight", {8}, Role::kAttentionNorm));
  EXPECT_FALSE(takes("transformer.output_layer.weight", {9, 8}, Role::kHead));
  EXPECT_FALSE(takes("transformer.wpe.weight", {9, 8}, Role::kPositions));
  EXPECT_FALSE(takes("score.weight", {1, 8}, Role::kScore));
  EXPECT_FALSE(takes("visual.patch_embed.proj.weight", {8, 3, 2, 4, 4}, Role::kOwn));
  EXPECT_FALSE(takes("visual.pos_embed.weight", {8, 8}, Role::kOwn));
  EXPECT_FALSE(takes("base_model.model.lm_head.lora_A.weight", {2, 8}, Role::kHead));
}

}  // namespace danlu::settings::options_test
