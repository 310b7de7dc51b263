// Mixture-of-experts families: which layers have experts, and what their parameters are called.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "arch/model_config.h"
#include "arch/parsed_config.h"
#include "base/error.h"
#include "support/shared_data.h"
#include "support/throws.h"
#include "support/tiny_model.h"

namespace danlu::arch {
namespace {

using test::tiny_config;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Shapes = std::map<std::string, std::vector<int64_t>>;

Shapes shapes_of(const ModelConfig& config) {
  Shapes shapes;
  for (const ParamSpec& spec : parameters_of(config)) shapes[spec.name] = spec.shape;
  return shapes;
}

/// The part of one layer that is not attention, without "model.layers.<n>.".
std::vector<std::string> feed_forward_of(const ModelConfig& config, int64_t layer) {
  std::vector<std::string> lines;
  for (const ParamSpec& spec : parameters_of(config)) {
    if (spec.layer != layer || spec.name.find("self_attn") != std::string::npos ||
        spec.name.find("layernorm") != std::string::npos)
      continue;
    lines.push_back(spec.name.substr(std::string("model.layers.0.").size()) + " " +
                    std::to_string(spec.shape[0]) + "x" + std::to_string(spec.shape[1]));
  }
  return lines;
}

TEST(Experts, MixtralHasTheTensorsOfItsReferenceFile) {
  DANLU_REQUIRES_SHARED();
  const auto directory = test::shared_dir() / "golden" / "mixtral";
  std::ifstream file(directory / "model.safetensors", std::ios::binary);
  uint64_t size = 0;
  file.read(reinterpret_cast<char*>(&size), sizeof(size));
  std::string header(size, ' ');
  file.read(header.data(), static_cast<std::streamsize>(size));
  const Json entries = Json::parse(header);
  Shapes in_file;
  for (const auto& [name, entry] : entries.items()) {
    if (name != "__metadata__") in_file[name] = entry["shape"].get<std::vector<int64_t>>();
  }
  const ModelConfig config = load_model_config(directory);
  EXPECT_EQ(shapes_of(config), in_file);
  EXPECT_EQ(config.experts.count, 4);
  EXPECT_EQ(config.experts.per_token, 2);
  EXPECT_EQ(config.experts.aux_loss_coef, 0.02);
  EXPECT_TRUE(config.experts.norm_topk);
}

TEST(Experts, Llama4IsReadFromBothSpellingsOfItsConfig) {
  DANLU_REQUIRES_SHARED();
  const auto directory = test::shared_dir() / "golden/moe/llama4_text";
  for (const char* name : {"config.json", "config_v5.json"}) {
    SCOPED_TRACE(name);
    const ModelConfig config = load_model_config(directory / name);
    EXPECT_EQ(config.ffn_size, 80);
    EXPECT_EQ(config.experts.ffn_size, 36);
    EXPECT_EQ(config.experts.shared_ffn_size, 36);
    EXPECT_TRUE(config.experts.scales_input);
    EXPECT_EQ(config.unrotated_layers, std::vector<int64_t>{3});
    EXPECT_EQ(config.attention_chunk, 13);
    EXPECT_EQ(config.query_growth, 0.1);
    EXPECT_EQ(config.query_growth_from, 16);
    EXPECT_TRUE(config.norms_rotated);
    EXPECT_TRUE(config.rope.is_pairwise);
    EXPECT_EQ(config.rope.scaling, RopeScaling::kLlama3);
  }
}

TEST(Experts, Llama4sLayersOfEachKind) {
  Json json = tiny_config("llama4_text");
  json.update({{"num_hidden_layers", 8}, {"interleave_moe_layer_step", 2}});
  json.erase("no_rope_layer_interval");
  ModelConfig config = parse(json);
  // Every second layer is sparse from layer 1 on, every fourth unrotated from layer 3 on.
  EXPECT_EQ(config.experts.sparse_layer,
            (std::vector<bool>{false, true, false, true, false, true, false, true}));
  EXPECT_EQ(config.unrotated_layers, (std::vector<int64_t>{3, 7}));
  json.update({{"moe_layers", {2, 5}},
               {"attention_chunk_size", nullptr},
               {"attn_temperature_tuning", 0},
               {"use_qk_norm", false}});
  config = parse(json);
  EXPECT_EQ(config.experts.sparse_layer,
            (std::vector<bool>{false, false, true, false, false, true, false, false}));
  EXPECT_EQ(config.attention_chunk, 0);
  EXPECT_EQ(config.query_growth, 0);
  EXPECT_FALSE(config.norms_rotated);
  json["attn_temperature_tuning"] = 4;  // as the first published files have it
  EXPECT_EQ(parse(json).query_growth, 0.1);
}

TEST(Experts, Llama4sContradictionsAreRefused) {
  Json json = tiny_config("llama4_text");
  const auto refused = [&](const Json& changes) {
    Json other = json;
    other.update(changes);
    return test::error_of<ModelError>([&] { parse(other); });
  };
  EXPECT_THAT(refused({{"no_rope_layers", {1, 0, 1}}}), testing::HasSubstr("one entry per layer"));
  EXPECT_THAT(refused({{"moe_layers", {2}}}), testing::HasSubstr("layers from 0 to 1, got 2"));
  EXPECT_THAT(refused({{"layer_types", {"full_attention", "full_attention"}}}),
              testing::HasSubstr("layer_types[0] must be chunked_attention"));
  EXPECT_THAT(refused({{"floor_scale", 0}}), testing::HasSubstr("floor_scale"));
}

TEST(Experts, PublishedParameterCounts) {
  // Mixtral 8x7B: 46,702,792,704.
  Json mixtral = tiny_config("mixtral");
  mixtral.update({{"vocab_size", 32000},
                  {"hidden_size", 4096},
                  {"intermediate_size", 14336},
                  {"num_hidden_layers", 32},
                  {"num_attention_heads", 32},
                  {"num_key_value_heads", 8},
                  {"num_local_experts", 8}});
  EXPECT_EQ(parameter_count(parse(mixtral)), 46702792704);
  // Qwen1.5-MoE-A2.7B: 14,315,784,192.
  Json qwen2 = tiny_config("qwen2_moe");
  qwen2.update({{"vocab_size", 151936},
                {"hidden_size", 2048},
                {"num_hidden_layers", 24},
                {"num_attention_heads", 16},
                {"num_key_value_heads", 16},
                {"num_experts", 60},
                {"moe_intermediate_size", 1408},
                {"shared_expert_intermediate_size", 5632}});
  EXPECT_EQ(parameter_count(parse(qwen2)), 14315784192);
  // Qwen3-30B-A3B: 30,532,122,624.
  Json qwen3 = tiny_config("qwen3_moe");
  qwen3.update({{"vocab_size", 151936},
                {"hidden_size", 2048},
                {"num_hidden_layers", 48},
                {"num_attention_heads", 32},
                {"num_key_value_heads", 4},
                {"head_dim", 128},
                {"num_experts", 128},
                {"num_experts_per_tok", 8},
                {"moe_intermediate_size", 768}});
  EXPECT_EQ(parameter_count(parse(qwen3)), 30532122624);
}

TEST(Experts, Qwen2MoeNamesOfASparseAndADenseLayer) {
  Json json = tiny_config("qwen2_moe");
  json["num_experts"] = 2;
  json["mlp_only_layers"] = {1};
  const ModelConfig config = parse(json);
  EXPECT_TRUE(config.qkv_bias);
  EXPECT_THAT(feed_forward_of(config, 0),
              ElementsAre("mlp.gate.weight 2x32",                      //
                          "mlp.experts.0.gate_proj.weight 24x32",      //
                          "mlp.experts.0.up_proj.weight 24x32",        //
                          "mlp.experts.0.down_proj.weight 32x24",      //
                          "mlp.experts.1.gate_proj.weight 24x32",      //
                          "mlp.experts.1.up_proj.weight 24x32",        //
                          "mlp.experts.1.down_proj.weight 32x24",      //
                          "mlp.shared_expert.gate_proj.weight 40x32",  //
                          "mlp.shared_expert.up_proj.weight 40x32",    //
                          "mlp.shared_expert.down_proj.weight 32x40",  //
                          "mlp.shared_expert_gate.weight 1x32"));
  EXPECT_THAT(feed_forward_of(config, 1),
              ElementsAre("mlp.gate_proj.weight 56x32", "mlp.up_proj.weight 56x32",
                          "mlp.down_proj.weight 32x56"));
}

TEST(Experts, Qwen3MoeHasNoSharedExpert) {
  Json json = tiny_config("qwen3_moe");
  json["num_experts"] = 2;
  json["num_hidden_layers"] = 1;
  const ModelConfig config = parse(json);
  EXPECT_TRUE(config.qk_norm);
  EXPECT_FALSE(config.qkv_bias);
  EXPECT_EQ(config.head_dim, 12);
  EXPECT_THAT(feed_forward_of(config, 0),
              ElementsAre("mlp.gate.weight 2x32",                  //
                          "mlp.experts.0.gate_proj.weight 24x32",  //
                          "mlp.experts.0.up_proj.weight 24x32",    //
                          "mlp.experts.0.down_proj.weight 32x24",  //
                          "mlp.experts.1.gate_proj.weight 24x32",  //
                          "mlp.experts.1.up_proj.weight 24x32",    //
                          "mlp.experts.1.down_proj.weight 32x24"));
}

TEST(Experts, LayersAreSparseByTheStepUnlessListedAsDense) {
  Json json = tiny_config("qwen3_moe");
  json["num_hidden_layers"] = 6;
  EXPECT_THAT(parse(json).experts.sparse_layer, ElementsAre(true, true, true, true, true, true));
  json["decoder_sparse_step"] = 2;
  // Layers 1, 3 and 5 are the second, fourth and sixth.
  EXPECT_THAT(parse(json).experts.sparse_layer, ElementsAre(false, true, false, true, false, true));
  json["mlp_only_layers"] = {3, 4};
  EXPECT_THAT(parse(json).experts.sparse_layer,
              ElementsAre(false, true, false, false, false, true));
}

TEST(Experts, EveryExpertTensorSaysWhoseItIsAndHowItIsCut) {
  int64_t of_experts = 0;
  for (const ParamSpec& spec : parameters_of(parse(tiny_config("qwen2_moe")))) {
    const size_t at = spec.name.find("experts.");
    ASSERT_EQ(spec.expert >= 0, at != std::string::npos) << spec.name;
    const bool is_down = spec.role == Role::kExpertDown || spec.role == Role::kSharedDown;
    if (spec.expert >= 0) {
      ++of_experts;
      EXPECT_EQ(std::to_string(spec.expert), spec.name.substr(at + 8, 1));
    }
    if (spec.role == Role::kRouter || spec.role == Role::kSharedExpertGate) {
      EXPECT_EQ(spec.cut, Cut::kCopiedInside) << spec.name;
    } else if (spec.name.find("expert") != std::string::npos) {
      EXPECT_EQ(spec.cut, is_down ? Cut::kColumns : Cut::kRows) << spec.name;
    }
  }
  EXPECT_EQ(of_experts, 2 * 4 * 3);
}

TEST(ExpertErrors, ImpossibleNumbersAreNamed) {
  Json json = tiny_config("mixtral");
  json["num_experts_per_tok"] = 5;
  EXPECT_THAT(model_error(json),
              HasSubstr("num_experts_per_tok=5 must be from 1 to the number of experts, 4"));
  json.erase("num_experts_per_tok");
  EXPECT_THAT(model_error(json), HasSubstr("required key num_experts_per_tok is missing"));
  json = tiny_config("qwen3_moe");
  json["mlp_only_layers"] = {2};
  EXPECT_THAT(model_error(json), HasSubstr("mlp_only_layers must name layers from 0 to 1, got 2"));
  json = tiny_config("qwen2_moe");
  json["decoder_sparse_step"] = 0;
  EXPECT_THAT(model_error(json), HasSubstr("decoder_sparse_step must be a whole number from 1"));
  json = tiny_config("mixtral");
  json["num_hidden_layers"] = 4096;
  json["num_local_experts"] = 4096;
  EXPECT_THAT(model_error(json), HasSubstr("4096 experts in each of 4096 layers are more than"));
}

}  // namespace
}  // namespace danlu::arch
