// Which modules adapters sit on, their shapes there, and what stands against them.
#include "weights/lora/adapter_places.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "support/tiny_model.h"

namespace danlu::weights {
namespace {

using Shape = std::vector<int64_t>;
using testing::ElementsAre;
using testing::IsEmpty;

arch::ModelConfig model(const std::string& family, const Json& changes = Json::object()) {
  Json json = test::tiny_config(family);
  json.update(changes);
  return arch::family_of(json).parse(json);
}

PeftConfig with_targets(const std::vector<std::string>& targets) {
  PeftConfig peft;
  set_targets(peft, targets);
  return peft;
}

TEST(AdapterPlaces, AllLinearIsEveryMatrixOfTheBlocksInModelOrder) {
  const std::vector<std::string> modules = linear_modules(model("qwen2"));
  ASSERT_EQ(modules.size(), 14u);
  EXPECT_EQ(modules.front(), "model.layers.0.self_attn.q_proj");
  EXPECT_EQ(modules.back(), "model.layers.1.mlp.down_proj");
  EXPECT_THAT(chosen_modules(with_targets({"lm_head", "embed_tokens"}), model("qwen2")),
              ElementsAre("model.embed_tokens", "lm_head"));
}

TEST(AdapterPlaces, RoutersAreChosenButNeedNoAdapter) {
  const arch::ModelConfig mixture = model("qwen2_moe");
  const PeftConfig every = with_targets({".*"});
  const auto weights = module_weights(mixture);
  for (const char* gate : {"model.layers.0.mlp.gate", "model.layers.0.mlp.shared_expert_gate"}) {
    ASSERT_TRUE(weights.count(gate)) << gate;
    EXPECT_TRUE(is_chosen(every, weights.at(gate))) << gate;
    EXPECT_FALSE(must_be_adapted(every, weights.at(gate))) << gate;
  }
  EXPECT_FALSE(must_be_adapted(every, weights.at("model.norm"))) << "no matrix";
}

std::vector<std::string> chosen_by(const std::vector<std::string>& targets) {
  const arch::ModelConfig config = model("qwen2_5_vl", {{"num_hidden_layers", 1}});
  PeftConfig peft = with_targets(targets);
  keep_out_of_tower(peft, config);
  return chosen_modules(peft, config);
}

TEST(AdapterPlaces, TargetsMeanTheDecoderWhereATowerHasTheSameNames) {
  const std::string layer = "model.layers.0.", block = "visual.blocks.";
  EXPECT_THAT(chosen_by({"all-linear"}),
              ElementsAre(layer + "self_attn.q_proj", layer + "self_attn.k_proj",
                          layer + "self_attn.v_proj", layer + "self_attn.o_proj",
                          layer + "mlp.gate_proj", layer + "mlp.up_proj", layer + "mlp.down_proj"));
  EXPECT_THAT(chosen_by({"q_proj", "gate_proj"}),
              ElementsAre(layer + "self_attn.q_proj", layer + "mlp.gate_proj"));
  // What only the tower has, and what says that it means the tower.
  EXPECT_THAT(chosen_by({"qkv"}), ElementsAre(block + "0.attn.qkv", block + "1.attn.qkv"));
  EXPECT_THAT(chosen_by({"proj"}), ElementsAre(block + "0.attn.proj", block + "1.attn.proj"))
      << "not the patches, which are no matrix";
  EXPECT_THAT(
      chosen_by({"down_proj", "visual.merger.mlp.0", "visual.blocks.1.mlp.down_proj"}),
      ElementsAre(block + "1.mlp.down_proj", "visual.merger.mlp.0", layer + "mlp.down_proj"));
  EXPECT_THAT(chosen_by({R"(.*\.up_proj)"}),
              ElementsAre(block + "0.mlp.up_proj", block + "1.mlp.up_proj", layer + "mlp.up_proj"));
}

TEST(AdapterPlaces, WhatATowerIsSparedStandsInTheConfig) {
  PeftConfig peft = with_targets({"q_proj", "gate_proj"});
  keep_out_of_tower(peft, model("qwen2_5_vl"));
  const Json written = peft_config_json(peft);
  EXPECT_EQ(written["exclude_modules"], R"((model\.)?visual\..*)");
  EXPECT_EQ(written["target_modules"], Json({"q_proj", "gate_proj"}));
  // Nothing to spare: nothing is written.
  for (const char* family : {"qwen2_vl", "qwen2"}) {
    PeftConfig names = with_targets({"q_proj", "gate_proj"});
    keep_out_of_tower(names, model(family));
    EXPECT_THAT(names.exclude_modules, IsEmpty()) << family;
  }
}

TEST(AdapterPlaces, ATargetIsIdleWhereItChoosesNothingAlone) {
  PeftConfig peft = with_targets({"q_proj", "W_pack", ".*_proj"});
  // Excluded and passed over: the word is right all the same. Of several words none is a pattern.
  peft.exclude_modules = {"q_proj"};
  peft.layers_to_transform = {7};
  EXPECT_THAT(idle_targets(peft, model("qwen2")), ElementsAre("W_pack", ".*_proj"));
  EXPECT_THAT(idle_targets(with_targets({".*_proj"}), model("qwen2")), IsEmpty());
}

TEST(AdapterPlaces, AnEmbeddingIsALinearLayerTheOtherWayRound) {
  const auto weights = module_weights(model("qwen2"));
  const auto shape = [&](const char* module, AdapterPart part) {
    return adapter_shape(weights.at(module), part, 3);
  };
  // 56 wide in the MLP, 32 elsewhere; 97 words.
  const char* down = "model.layers.0.mlp.down_proj";
  EXPECT_EQ(shape(down, AdapterPart::kLoraA), (Shape{3, 56}));
  EXPECT_EQ(shape(down, AdapterPart::kLoraB), (Shape{32, 3}));
  EXPECT_EQ(shape(down, AdapterPart::kMagnitude), (Shape{32}));
  EXPECT_EQ(shape(down, AdapterPart::kSavedModule), (Shape{32, 56}));
  EXPECT_EQ(shape(down, AdapterPart::kEmbeddingA), Shape{});
  EXPECT_EQ(shape("model.embed_tokens", AdapterPart::kEmbeddingA), (Shape{3, 97}));
  EXPECT_EQ(shape("model.embed_tokens", AdapterPart::kEmbeddingB), (Shape{32, 3}));
  EXPECT_EQ(shape("model.embed_tokens", AdapterPart::kLoraA), Shape{});
  EXPECT_EQ(shape("model.norm", AdapterPart::kLoraA), Shape{});
  EXPECT_EQ(shape("model.norm", AdapterPart::kSavedModule), (Shape{32}));
}

/// What stands against an adapter on the head or the embedding: "" or "merging", "computing".
std::string against(const arch::ModelConfig& config, const char* module, bool dora) {
  PeftConfig peft;
  peft.dora = dora;
  const AdapterLimits limits = limits_at(peft, config, module_weights(config).at(module));
  return std::string(limits.merging.empty() ? "" : "merging ") +
         (limits.computing.empty() ? "" : "computing");
}

TEST(AdapterPlaces, WhatCanBeMergedIsMoreThanWhatCanBeComputed) {
  const arch::ModelConfig plain = model("qwen2"),
                          tied = model("qwen2", {{"tie_word_embeddings", true}}),
                          normalised = model("baichuan", {{"vocab_size", 125696}});
  ASSERT_TRUE(normalised.norm_head);
  EXPECT_EQ(against(plain, "model.layers.0.mlp.up_proj", true), "");
  EXPECT_EQ(against(plain, "lm_head", false), "");
  EXPECT_EQ(against(plain, "lm_head", true), "computing");
  EXPECT_EQ(against(plain, "model.embed_tokens", false), "computing");
  EXPECT_EQ(against(plain, "model.embed_tokens", true), "merging computing");
  EXPECT_EQ(against(tied, "lm_head", false), "computing");
  EXPECT_EQ(against(normalised, "lm_head", false), "merging computing");
}

TEST(AdapterPlaces, ABaseLayerIsTheModuleItself) {
  const auto module = [](const std::string& tensor) {
    return base_module(parse_adapter_name("base_model.model." + tensor).value());
  };
  EXPECT_EQ(module("lm_head.base_layer.weight"), "lm_head");
  EXPECT_EQ(module("lm_head.base_layer.bias"), "lm_head");
  EXPECT_EQ(module("lm_head.lora_A.weight"), "lm_head");
  EXPECT_TRUE(is_within("model.layers.0.mlp.up_proj", "mlp"));
  EXPECT_FALSE(is_named("model.layers.0.mlp.up_proj", "mlp"));
  EXPECT_TRUE(is_named("model.layers.0.mlp.up_proj", "mlp.up_proj"));
  EXPECT_FALSE(is_named("model.layers.0.mlp.up_proj", "proj"));
}

}  // namespace
}  // namespace danlu::weights
