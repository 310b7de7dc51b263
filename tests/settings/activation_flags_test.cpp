// What becomes of activations, under our names, HF's, Megatron's and MindSpeed's.
#include <gmock/gmock.h>

#include "settings/option_lines.h"

namespace danlu::settings::options_test {

using ::testing::HasSubstr;

TEST_F(TrainOptions, MegatronsRecomputeActivationsIsSelective) {
  const auto granularity = [&](const std::vector<std::string>& words) {
    return with("pretrain", words).recompute.granularity;
  };
  // Source: Megatron-LM, megatron/training/arguments.py, which sets the granularity by it.
  EXPECT_EQ(granularity({"--recompute-activations"}), "selective");
  EXPECT_EQ(granularity({"--gradient_checkpointing"}), "full");
  EXPECT_EQ(granularity({"--recompute-activations", "--recompute-granularity", "selective"}),
            "selective");
  EXPECT_THAT(refusal("pretrain", {"--recompute-activations", "--recompute-granularity", "full"}),
              HasSubstr("--recompute-granularity is full; give one"));
  EXPECT_EQ(granularity({"--recompute-activations", "false"}), "none");
  EXPECT_THAT(refusal("pretrain", {"--recompute-activations", "--gradient_checkpointing"}),
              HasSubstr("give one"));
}

TEST_F(TrainOptions, AutoIsLeftToThePlan) {
  EXPECT_EQ(with("sft", {"--recompute", "auto"}).recompute.granularity, "auto");
  EXPECT_THAT(refusal("sft", {"--recompute", "auto", "--recompute-norm"}), HasSubstr("auto"));
  EXPECT_THAT(refusal("sft", {"--recompute", "auto", "--recompute-num-layers", "2"}),
              HasSubstr("auto"));
}

TEST_F(TrainOptions, WhatIsOffloadedOfActivations) {
  const std::string folder = directory_.path().string();
  const auto offload = [&](const std::vector<std::string>& words) {
    return with("sft", words).activation_offload;
  };
  EXPECT_EQ(offload({}), ActivationOffload{});
  EXPECT_EQ(offload({"--activation_offload", "host"}), (ActivationOffload{.to = OffloadTo::kHost}));
  EXPECT_EQ(offload({"--activation_offload", "host", "--activation_offload_num_layers", "3",
                     "--activation_offload_modules", "mlp,input_norm"}),
            (ActivationOffload{.to = OffloadTo::kHost,
                               .num_layers = 3,
                               .self_attention = false,
                               .post_attention_norm = false}));
  const ActivationOffload swapped{.to = OffloadTo::kHost, .mlp = false};
  EXPECT_EQ(offload({"--swap-attention"}), swapped);
  EXPECT_EQ(offload({"--swap-attention", "--swap-modules",
                     "input_norm,self_attention,post_attention_norm"}),
            swapped);
  EXPECT_EQ(offload({"--swap-attention", "--activation_offload", "file", "--offload_dir", folder}),
            (ActivationOffload{.to = OffloadTo::kFile, .directory = folder, .mlp = false}));
  EXPECT_THAT(refusal("sft", {"--swap-attention", "--swap-modules", "input_norm,router"}),
              HasSubstr("--swap-modules router: a layer has input_norm"));
  EXPECT_THAT(refusal("sft", {"--swap-attention", "--activation_offload", "none"}),
              HasSubstr("give one"));
}

TEST_F(TrainOptions, AFileOfActivationsNeedsADirectoryAndLeavesTheStateWhereItIs) {
  const std::string folder = directory_.path().string();
  EXPECT_THAT(refusal("sft", {"--activation_offload", "file"}), HasSubstr("--offload_dir DIR"));
  EXPECT_THAT(
      refusal("sft", {"--activation_offload", "file", "--offload_dir", folder + "/nowhere"}),
      HasSubstr("no such directory"));
  const std::vector<std::string> file = {"--activation_offload", "file", "--offload_dir", folder};
  const TrainConfig alone = with("sft", file);
  EXPECT_EQ(alone.activation_offload.directory, folder);
  EXPECT_TRUE(alone.keeping.state_in.empty());
  const TrainConfig both = with("sft", file + std::vector<std::string>{"--offload", "optimizer"});
  EXPECT_EQ(both.activation_offload.directory, folder);
  EXPECT_EQ(both.keeping.state_in, folder);
  EXPECT_EQ(with("sft", {"--offload_dir", folder}).keeping.state_in, folder);
  EXPECT_THAT(notices("sft", {"--swap-modules", "mlp"}), HasSubstr("--swap-modules"));
}

}  // namespace danlu::settings::options_test
