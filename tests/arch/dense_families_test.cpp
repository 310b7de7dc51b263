// What sets Phi-3, Gemma, GLM, ChatGLM, MiniCPM and InternLM3 apart from Llama: names, sizes, keys
// of config.json, and which part of a joined matrix a rank holds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "arch/decoder.h"
#include "arch/learned_positions.h"
#include "arch/parsed_config.h"
#include "arch/shard.h"
#include "base/file.h"
#include "support/temporary_directory.h"
#include "support/throws.h"
#include "support/tiny_model.h"

namespace danlu::arch {
namespace dense_families_test {

using test::tiny_config;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ModelConfig with(const std::string& family, const Json& changes) {
  Json json = tiny_config(family);
  json.update(changes);
  return parse(json);
}
std::string error(const std::string& family, const Json& changes) {
  Json json = tiny_config(family);
  json.update(changes);
  return model_error(json);
}

ParamSpec spec_of(const ModelConfig& config, const std::string& name) {
  for (const ParamSpec& spec : parameters_of(config)) {
    if (spec.name == name) return spec;
  }
  ADD_FAILURE() << "no " << name;
  return {};
}

// The published sizes: Phi-3.5-mini, Gemma 2B and 7B, Gemma 2 9B, GLM-4-9B, ChatGLM3-6B,
// MiniCPM-2B.
TEST(DenseFamilies, HaveThePublishedNumberOfParameters) {
  const auto count = [](const std::string& family, const Json& json) {
    Json all = {{"model_type", family}};
    all.update(json);
    return parameter_count(parse(all));
  };
  EXPECT_EQ(count("phi3", {{"vocab_size", 32064},
                           {"hidden_size", 3072},
                           {"intermediate_size", 8192},
                           {"num_hidden_layers", 32},
                           {"num_attention_heads", 32}}),
            3821079552);
  EXPECT_EQ(count("gemma", {{"vocab_size", 256000},
                            {"hidden_size", 2048},
                            {"intermediate_size", 16384},
                            {"num_hidden_layers", 18},
                            {"num_attention_heads", 8},
                            {"num_key_value_heads", 1}}),
            2506172416);
  EXPECT_EQ(count("gemma2", {{"vocab_size", 256000},
                             {"hidden_size", 3584},
                             {"intermediate_size", 14336},
                             {"num_hidden_layers", 42},
                             {"num_attention_heads", 16},
                             {"num_key_value_heads", 8}}),
            9241705984);
  EXPECT_EQ(count("chatglm", {{"padded_vocab_size", 65024},
                              {"hidden_size", 4096},
                              {"ffn_hidden_size", 13696},
                              {"num_layers", 28},
                              {"num_attention_heads", 32},
                              {"kv_channels", 128},
                              {"multi_query_attention", true},
                              {"multi_query_group_num", 2},
                              {"add_qkv_bias", true}}),
            6243584000);
  // BLOOM-7B1, with the keys of its file.
  EXPECT_EQ(count("bloom", {{"vocab_size", 250880},
                            {"n_embed", 4096},
                            {"n_layer", 30},
                            {"num_attention_heads", 32},
                            {"seq_length", 2048}}),
            7069016064);
  // GPT-2 (gpt2), and GPT-3 175B as Megatron's script gives its sizes.
  EXPECT_EQ(count("gpt2", {{"vocab_size", 50257},
                           {"n_embd", 768},
                           {"n_layer", 12},
                           {"n_head", 12},
                           {"n_positions", 1024}}),
            124439808);
  EXPECT_EQ(count("gpt2", {{"vocab_size", 51200},
                           {"n_embd", 12288},
                           {"n_layer", 96},
                           {"n_head", 96},
                           {"n_positions", 2048}}),
            96 * (12 * 12288 * int64_t{12288} + 13 * 12288) + (51200 + 2048 + 2) * int64_t{12288});
}

TEST(DenseFamilies, Gpt2HasATableOfPositions) {
  const ModelConfig config = parse({{"model_type", "gpt2"},
                                    {"vocab_size", 97},
                                    {"n_embd", 48},
                                    {"n_layer", 3},
                                    {"n_head", 6},
                                    {"n_inner", nullptr},
                                    {"layer_norm_epsilon", 1e-4},
                                    {"n_positions", 64}});
  EXPECT_EQ(config.num_layers, 3);
  EXPECT_EQ(config.num_kv_heads, 6);
  EXPECT_EQ(config.ffn_size, 192);
  EXPECT_EQ(config.norm_eps, 1e-4);
  EXPECT_EQ(learned_positions(config), 64);
  EXPECT_TRUE(config.tie_embeddings && !config.rope.enabled && !config.is_gated);
  EXPECT_EQ(spec_of(config, "transformer.wpe.weight").role, Role::kPositions);
  EXPECT_THAT(spec_of(config, "transformer.wpe.weight").shape, ElementsAre(64, 48));
  EXPECT_THAT(spec_of(config, "transformer.h.2.attn.c_attn.weight").shape, ElementsAre(144, 48));
  EXPECT_THAT(error("gpt2", {{"scale_attn_by_inverse_layer_idx", true}}),
              HasSubstr("scale_attn_by_inverse_layer_idx must be false, got true"));
  EXPECT_THAT(error("gpt2", {{"activation_function", "relu"}}), HasSubstr("got \"relu\""));
  EXPECT_THAT(error("gpt2", {{"activation_function", "silu"}}),
              HasSubstr("activation_function must be gelu or gelu_new, got \"silu\""));
}

TEST(DenseFamilies, BloomHasKeysOfItsOwn) {
  const ModelConfig config = parse({{"model_type", "bloom"},
                                    {"vocab_size", 97},
                                    {"n_embed", 48},
                                    {"n_layer", 3},
                                    {"n_head", 6},
                                    {"layer_norm_epsilon", 1e-4},
                                    {"seq_length", 64}});
  EXPECT_EQ(config.num_layers, 3);
  EXPECT_EQ(config.num_kv_heads, 6);
  EXPECT_EQ(config.ffn_size, 192);
  EXPECT_EQ(config.norm_eps, 1e-4);
  EXPECT_EQ(config.max_positions, 64);
  EXPECT_TRUE(config.tie_embeddings && config.alibi && config.norms_embedding);
  EXPECT_EQ(spec_of(config, "transformer.word_embeddings_layernorm.bias").role,
            Role::kEmbeddingNorm);
  EXPECT_THAT(spec_of(config, "transformer.h.2.mlp.dense_h_to_4h.weight").shape,
              ElementsAre(192, 48));
  EXPECT_THAT(error("bloom", {{"apply_residual_connection_post_layernorm", true}}),
              HasSubstr("apply_residual_connection_post_layernorm must be false, got true"));
}

TEST(DenseFamilies, Phi3JoinsItsMatrices) {
  const ModelConfig config = with("phi3", {{"sliding_window", 5}});
  // 4 query heads, 2 keys and 2 values of 8, hidden 32, width 56.
  EXPECT_THAT(spec_of(config, "model.layers.1.self_attn.qkv_proj.weight").shape,
              ElementsAre(64, 32));
  EXPECT_THAT(spec_of(config, "model.layers.1.mlp.gate_up_proj.weight").shape,
              ElementsAre(112, 32));
  EXPECT_EQ(spec_of(config, "model.layers.1.mlp.gate_up_proj.weight").cut, Cut::kHalves);
  EXPECT_THAT(config.sliding_window, ElementsAre(5, 5));
  EXPECT_THAT(with("phi3", {{"sliding_window", nullptr}}).sliding_window, ElementsAre(0, 0));
}

TEST(DenseFamilies, ARankHoldsItsPartOfEachOfTheJoinedMatrices) {
  const ModelConfig config = with("phi3", Json::object());
  const ParamSpec qkv = spec_of(config, "model.layers.0.self_attn.qkv_proj.weight"),
                  gate_up = spec_of(config, "model.layers.0.mlp.gate_up_proj.weight");
  // Queries are rows 0 to 31, keys 32 to 47, values 48 to 63.
  EXPECT_THAT(shard(config, qkv, {2, 1}),
              ElementsAre(Rect{16, 16, 0, 32}, Rect{40, 8, 0, 32}, Rect{56, 8, 0, 32}));
  EXPECT_THAT(shard(config, qkv, {4, 1}),
              ElementsAre(Rect{8, 8, 0, 32}, Rect{32, 8, 0, 32}, Rect{48, 8, 0, 32}));
  EXPECT_THAT(shard(config, gate_up, {2, 1}),
              ElementsAre(Rect{28, 28, 0, 32}, Rect{84, 28, 0, 32}));
}

TEST(DenseFamilies, LongropeHasADivisorForEachPairThatIsRotated) {
  const Json scaling = {
      {"type", "su"}, {"short_factor", {1, 2, 3}}, {"long_factor", {4.0, 5.0, 6.0}}};
  const ModelConfig config = with("phi3", {{"rope_scaling", scaling},
                                           {"partial_rotary_factor", 0.75},
                                           {"original_max_position_embeddings", 32}});
  EXPECT_EQ(config.rope.scaling, RopeScaling::kLongRope);
  EXPECT_EQ(config.rope.rotated_dims, 6);
  EXPECT_THAT(config.rope.short_factors, ElementsAre(1, 2, 3));
  EXPECT_THAT(config.rope.long_factors, ElementsAre(4, 5, 6));
  EXPECT_EQ(config.rope.original_max_positions, 32);
  EXPECT_EQ(config.rope.factor, 4.0);  // 128 / 32
  EXPECT_THAT(
      error("phi3", {{"rope_scaling", scaling}}),
      HasSubstr("needs 4 positive numbers in short_factor, one for each pair of a head, got 3"));
  EXPECT_THAT(
      error("phi3", {{"rope_scaling", {{"type", "longrope"}, {"short_factor", {1, 2, 3, -1}}}}}),
      HasSubstr("short_factor"));
  EXPECT_THAT(error("phi3", {{"partial_rotary_factor", 0.4}}),
              HasSubstr("partial_rotary_factor=0.4 of head_dim=8 must be an even number"));
}

TEST(DenseFamilies, GemmasDifferByGeneration) {
  const ModelConfig one = with("gemma", {{"hidden_act", "gelu"}, {"hidden_activation", nullptr}});
  EXPECT_EQ(one.norm, NormKind::kRmsOffset);
  EXPECT_EQ(one.activation, Activation::kGeluTanh);
  EXPECT_EQ(one.embedding_scale, std::sqrt(32.0));
  EXPECT_TRUE(one.tie_embeddings);
  EXPECT_FALSE(one.has_post_norms);
  EXPECT_THAT(spec_of(one, "model.layers.0.self_attn.q_proj.weight").shape, ElementsAre(48, 32));

  const ModelConfig two =
      with("gemma2", {{"num_hidden_layers", 3}, {"attn_logit_softcapping", 50.0}});
  EXPECT_EQ(two.attention_softcap, 50.0);
  EXPECT_EQ(two.logit_softcap, 30.0);
  EXPECT_EQ(two.attention_scale, 1 / std::sqrt(10.0));
  EXPECT_THAT(two.sliding_window, ElementsAre(3, 0, 3));
  EXPECT_EQ(spec_of(two, "model.layers.2.post_attention_layernorm.weight").role,
            Role::kPostAttentionNorm);
  EXPECT_EQ(spec_of(two, "model.layers.2.pre_feedforward_layernorm.weight").role, Role::kMlpNorm);
  EXPECT_EQ(spec_of(two, "model.layers.2.post_feedforward_layernorm.weight").role,
            Role::kPostMlpNorm);
  EXPECT_EQ(with("gemma2", {{"final_logit_softcapping", nullptr}}).logit_softcap, 0);

  const ModelConfig three =
      with("gemma3_text", {{"num_hidden_layers", 5}, {"sliding_window_pattern", 3}});
  EXPECT_TRUE(three.qk_norm);
  EXPECT_EQ(three.attention_softcap, 0);
  EXPECT_THAT(three.sliding_window, ElementsAre(3, 3, 0, 3, 3));
  EXPECT_EQ(three.rope.theta, 1e6);
  ASSERT_TRUE(three.window_rope);
  EXPECT_EQ(three.window_rope->theta, 10000);
  EXPECT_THAT(error("gemma3_text", {{"use_bidirectional_attention", true}}),
              HasSubstr("use_bidirectional_attention must be false"));
  EXPECT_THAT(error("gemma2", {{"query_pre_attn_scalar", -1}}),
              HasSubstr("query_pre_attn_scalar must be a positive number"));
  EXPECT_THAT(error("gemma", {{"hidden_activation", "relu"}}),
              HasSubstr("hidden_activation must be silu, gelu or gelu_pytorch_tanh, got \"relu\""));
}

TEST(DenseFamilies, Gemma3TakesBothItsRopesFromOneKey) {
  Json json = tiny_config("gemma3_text");
  json["rope_parameters"] = {
      {"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 5e5}}},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 7000}}}};
  const ModelConfig config = parse(json);
  EXPECT_EQ(config.rope.theta, 5e5);
  EXPECT_EQ(config.rope.scaling, RopeScaling::kLinear);
  EXPECT_EQ(config.window_rope->theta, 7000);
  EXPECT_EQ(config.window_rope->scaling, RopeScaling::kNone);
}

TEST(DenseFamilies, GlmRotatesNeighboursOfHalfAHead) {
  for (const char* family : {"glm", "glm4"}) {
    const ModelConfig config = with(family, Json::object());
    EXPECT_TRUE(config.rope.is_pairwise);
    EXPECT_EQ(config.rope.rotated_dims, 4);
    EXPECT_EQ(config.qkv_bias, family == std::string("glm"));
    EXPECT_FALSE(config.o_bias);
  }
  const ModelConfig glm4 = with("glm4", Json::object());
  EXPECT_EQ(spec_of(glm4, "model.layers.0.post_attention_layernorm.weight").role, Role::kMlpNorm);
  EXPECT_EQ(spec_of(glm4, "model.layers.0.post_self_attn_layernorm.weight").role,
            Role::kPostAttentionNorm);
}

/// Two generations with one rope_ratio; the code that lies beside the files tells them apart.
TEST(DenseFamilies, AChatGlmWhosePositionsAreDividedIsRefused) {
  const test::TemporaryDirectory folder;
  Json json = tiny_config("chatglm");
  json["rope_ratio"] = 50;
  write_json_file(folder / "config.json", json);
  write_file_atomic(folder / "modeling_chatglm.py", "        base = base * self.rope_ratio\n");
  EXPECT_EQ(load_model_config(folder.path()).rope.theta, 500000);
  write_file_atomic(folder / "modeling_chatglm.py",
                    "        seq_idx = torch.arange(seq_len) / self.rope_ratio\n");
  EXPECT_THAT(test::error_of<ModelError>([&] { load_model_config(folder.path()); }),
              HasSubstr("ChatGLM2-6B-32K"));
}

TEST(DenseFamilies, ChatGlmHasKeysOfItsOwn) {
  const Json json = {{"model_type", "chatglm"},
                     {"architectures", {"ChatGLMModel"}},
                     {"num_layers", 3},
                     {"padded_vocab_size", 96},
                     {"vocab_size", 90},
                     {"hidden_size", 32},
                     {"ffn_hidden_size", 40},
                     {"num_attention_heads", 4},
                     {"kv_channels", 12},
                     {"multi_query_attention", true},
                     {"multi_query_group_num", 2},
                     {"layernorm_epsilon", 1e-4},
                     {"seq_length", 8192},
                     {"rope_ratio", 50},
                     {"add_qkv_bias", true}};
  const ModelConfig config = parse(json);
  EXPECT_EQ(config.num_layers, 3);
  EXPECT_EQ(config.vocab_size, 96);
  EXPECT_EQ(config.head_dim, 12);
  EXPECT_EQ(config.num_kv_heads, 2);
  EXPECT_EQ(config.norm_eps, 1e-4);
  EXPECT_EQ(config.max_positions, 8192);
  EXPECT_EQ(config.rope.theta, 500000);
  EXPECT_EQ(config.rope.rotated_dims, 6);
  EXPECT_TRUE(config.qkv_bias);
  EXPECT_FALSE(config.o_bias);
  EXPECT_EQ(config.raw, json);  // written back as it was read
  // 4 + 2 + 2 heads of 12.
  EXPECT_THAT(
      spec_of(config, "transformer.encoder.layers.2.self_attention.query_key_value.bias").shape,
      ElementsAre(96));
  EXPECT_THAT(spec_of(config, "transformer.encoder.layers.2.mlp.dense_h_to_4h.weight").shape,
              ElementsAre(80, 32));
  const auto refusal = [&](const Json& changes) {
    Json other = json;
    other.update(changes);
    return model_error(other);
  };
  EXPECT_THAT(refusal({{"rmsnorm", false}}), HasSubstr("rmsnorm must be true"));
  EXPECT_THAT(refusal({{"apply_residual_connection_post_layernorm", true}}),
              HasSubstr("apply_residual_connection_post_layernorm must be false"));
  EXPECT_THAT(refusal({{"pre_seq_len", 128}}), HasSubstr("pre_seq_len"));
  EXPECT_THAT(refusal({{"kv_channels", 10}}), HasSubstr("kv_channels=10 must be a multiple of 4"));
}

TEST(DenseFamilies, MiniCpmsFactors) {
  const ModelConfig config = with("minicpm", {{"num_hidden_layers", 4}});
  EXPECT_EQ(config.embedding_scale, 12);
  EXPECT_EQ(config.residual_scale, 0.7);  // 1.4 / sqrt(4)
  EXPECT_EQ(config.logit_scale, 0.5);     // 16 / 32
  EXPECT_THAT(error("minicpm", {{"scale_depth", 0}}),
              HasSubstr("scale_depth must be a positive number"));
  EXPECT_THAT(error("minicpm", {{"num_experts", 8}}), HasSubstr("num_experts"));
}

TEST(DenseFamilies, InternLm3HasTwoKeysForBiases) {
  const ModelConfig config = with("internlm3", {{"qkv_bias", false}, {"bias", true}});
  EXPECT_FALSE(config.qkv_bias);
  EXPECT_TRUE(config.o_bias && config.mlp_bias);
  EXPECT_EQ(config.head_dim, 12);
}

TEST(DenseFamilies, Qwen1CountsBothHalvesOfItsFeedForwardPart) {
  const ModelConfig config = with("qwen", {{"rotary_emb_base", 1000000}, {"seq_length", 2048}});
  EXPECT_EQ(config.ffn_size, 56);
  EXPECT_EQ(config.max_positions, 2048);
  EXPECT_EQ(config.rope.theta, 1e6);
  EXPECT_TRUE(config.qkv_bias);
  EXPECT_FALSE(config.o_bias || config.mlp_bias);
  EXPECT_THAT(error("qwen", {{"rotary_pct", 0.25}}), HasSubstr("rotary_pct must be 1, got 0.25"));
  EXPECT_THAT(error("qwen", {{"intermediate_size", 57}}),
              HasSubstr("intermediate_size=57 must be even"));
}

TEST(DenseFamilies, InternLm1HasRotaryKeysOfItsOwn) {
  const ModelConfig config =
      with("internlm", {{"rotary", {{"base", 30000}, {"type", "dynamic"}, {"scaling_factor", 2}}}});
  EXPECT_TRUE(config.qkv_bias && config.o_bias);
  EXPECT_FALSE(config.mlp_bias);
  EXPECT_EQ(config.rope.theta, 30000);
  EXPECT_EQ(config.rope.scaling, RopeScaling::kDynamic);
  EXPECT_EQ(config.rope.factor, 2);
  EXPECT_THAT(error("internlm", {{"rotary", {{"type", "yarn"}}}}),
              HasSubstr("rotary.type must be origin or dynamic, got \"yarn\""));
}

TEST(DenseFamilies, AquilaIsALlama) {
  Json config = test::tiny_config("llama");
  config["model_type"] = "aquila";
  config["architectures"] = {"AquilaForCausalLM"};
  EXPECT_EQ(family_of(config).name, "llama");
}

}  // namespace dense_families_test
}  // namespace danlu::arch
