#include "train/throughput.h"

#include <gtest/gtest.h>

#include "models/adapters.h"
#include "support/tiny_model.h"
#include "train/support.h"

namespace danlu::train {
namespace throughput_test {

// Worked out by hand for the tiny Llama (2 layers, width 32, 4 heads of 8, 2 KV heads, FFN 48,
// vocabulary 96): a layer multiplies by 32·32 + 2·16·32 + 32·32 + 3·48·32 = 7,680 weights, the head
// by 96·32 = 3,072.
constexpr double kWeights = 2 * 7680 + 3072;

data::LengthStats lengths_10_and_30() {
  data::LengthStats lengths;
  lengths.add(10);
  lengths.add(30);
  return lengths;
}
// 6 · 2 layers · 4 heads · 8 · (10² + 30²) / 40
constexpr double kAttention = 6.0 * 2 * 4 * 8 * 25;

models::CausalLM tiny_model(bool tied) {
  arch::ModelConfig config = test::tiny_config();
  config.tie_embeddings = tied;
  return models::CausalLM(config, parallel::Mesh::single(), at::kFloat, at::kCPU);
}

TEST(FlopsPerToken, CountsEveryMatrixOnceAndNoLookUp) {
  for (const bool tied : {false, true}) {
    EXPECT_DOUBLE_EQ(flops_per_token(tiny_model(tied), lengths_10_and_30()),
                     6 * kWeights + kAttention)
        << "tied " << tied;
  }
}

TEST(FlopsPerToken, FrozenWeightsNeedNoGradientOfTheirOwn) {
  models::CausalLM model = tiny_model(false);
  model.freeze({"layers\\.0\\."});
  EXPECT_DOUBLE_EQ(flops_per_token(model, lengths_10_and_30()),
                   6 * (kWeights - 7680) + 4 * 7680 + kAttention);
}

TEST(FlopsPerToken, AdaptersAddTheirOwnProducts) {
  models::CausalLM model = tiny_model(false);
  weights::PeftConfig lora = settings::new_adapters();
  lora.rank = 8;
  models::add_lora(model, lora, 1);
  // q, o: 8 · (32 + 32); k, v: 8 · (32 + 16); gate, up, down: 8 · (32 + 48)
  constexpr double kAdapters = 2 * (2 * 512 + 2 * 384 + 3 * 640);
  EXPECT_DOUBLE_EQ(flops_per_token(model, lengths_10_and_30()),
                   4 * kWeights + 6 * kAdapters + kAttention);
}

TEST(FlopsPerToken, AModuleTrainedWholeIsATrainedWeight) {
  models::CausalLM model = tiny_model(false);
  weights::PeftConfig lora = settings::new_adapters();
  lora.rank = 8;
  weights::set_targets(lora, {"q_proj"});
  lora.modules_to_save = {"lm_head"};
  models::add_lora(model, lora, 1);
  EXPECT_DOUBLE_EQ(flops_per_token(model, lengths_10_and_30()),
                   4 * (kWeights - 3072) + 6 * 3072 + 6 * (2 * 512) + kAttention);
}

/// Tower: 2 blocks of width 24, FFN 48, patches of 3·2·4·4 = 96 values; merger from 4 · 24 = 96.
TEST(FlopsPerToken, ATowerWorksOnThePatchesOfVisualTokens) {
  Json json = danlu::test::tiny_config("qwen2_vl");
  const auto make = [&] {
    return models::CausalLM(arch::family_of(json).parse(json), parallel::Mesh::single(), at::kFloat,
                            at::kCPU);
  };
  constexpr double kBlock = 3 * 24 * 24 + 24 * 24 + 2 * 24 * 48, kMerger = 96 * 96 + 32 * 96;
  constexpr double kPatches = 4 * (24 * 96 + 2 * kBlock);  // of a visual token
  models::CausalLM model = make();
  EXPECT_DOUBLE_EQ(flops_per_visual_token(model), 6 * (kPatches + kMerger));
  const double text = flops_per_token(model, lengths_10_and_30());
  model.freeze({"visual\\.blocks\\."});
  EXPECT_DOUBLE_EQ(flops_per_visual_token(model), 6 * (kPatches + kMerger) - 2 * 4 * 2 * kBlock);
  models::CausalLM frozen = make();
  frozen.freeze({"visual\\."});
  EXPECT_DOUBLE_EQ(flops_per_visual_token(frozen), 2 * (kPatches + kMerger));
  EXPECT_DOUBLE_EQ(flops_per_token(frozen, lengths_10_and_30()), text) << "the decoder's own";
  EXPECT_EQ(flops_per_visual_token(tiny_model(false)), 0);
}

}  // namespace throughput_test
}  // namespace danlu::train
