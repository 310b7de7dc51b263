// Models of linear attention through the program: the cells of their table in docs/features.md.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/random_model_dir.h"
#include "cli/short_training.h"
#include "support/slow.h"

namespace danlu::test {
namespace hybrid_test {

nlohmann::json hybrid(const std::string& family) {
  nlohmann::json config = {
      {"model_type", family},
      {"architectures",
       {family == "qwen3_next"     ? "Qwen3NextForCausalLM"
        : family == "qwen3_5_text" ? "Qwen3_5ForCausalLM"
                                   : "Qwen3_5MoeForCausalLM"}},
      {"vocab_size", 320},
      {"hidden_size", 32},
      {"intermediate_size", 48},
      {"num_hidden_layers", 4},
      {"num_attention_heads", 4},
      {"num_key_value_heads", 2},
      {"head_dim", 8},
      {"max_position_embeddings", 128},
      {"rms_norm_eps", 1e-6},
      {"initializer_range", 0.1},
      {"tie_word_embeddings", false},
      {"torch_dtype", "float32"},
      {"rope_parameters",
       {{"rope_type", "default"}, {"rope_theta", 10000.0}, {"partial_rotary_factor", 0.25}}},
      {"linear_num_key_heads", 2},
      {"linear_num_value_heads", 4},
      {"linear_key_head_dim", 6},
      {"linear_value_head_dim", 5}};
  if (family != "qwen3_5_text") {
    config.update({{"num_experts", 4},
                   {"num_experts_per_tok", 2},
                   {"moe_intermediate_size", 24},
                   {"shared_expert_intermediate_size", 24}});
  }
  return config;
}

class HybridChain : public ShortTraining, public testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    DANLU_SLOW_BUT_FOR("qwen3_5_moe_text");
    ShortTraining::SetUp();
    make_model(hybrid(GetParam()));
  }
};

TEST_P(HybridChain, IsTrainedSavedConvertedAndAsked) {
  ok(train_line("full", "--max_steps 3 --tuner full --packing true"));
  const std::vector<double> full = losses("full");
  EXPECT_NE(full.front(), full.back());
  ok({"convert", "full", "copy", "--to", "hf"});
  expect_same("full", "copy");
  const std::string answer = ask(*this / "full").out;
  EXPECT_EQ(ask(*this / "copy").out, answer);

  ok(train_line("lora",
                "--max_steps 3 --tuner lora --target_modules all-linear --lora_rank 4 "
                "--packing true"));
  EXPECT_NEAR(losses("lora")[0], full[0], 1e-5 * full[0]);
  EXPECT_EQ(ask(*this / "lora").exit_code, 0);
  ok({"convert", "model", "merged", "--to", "hf", "--adapters", "lora"});
  EXPECT_EQ(ask(*this / "merged").out, ask(*this / "lora").out);
}

TEST_P(HybridChain, IsCutByLayersAndNotByHeadsOrTokens) {
  ok(train_line("one", "--max_steps 2 --tuner full"));
  ok(on_two(train_line("two", "--max_steps 2 --tuner full --pp 2")));
  const std::vector<double> one = losses("one"), two = losses("two");
  ASSERT_EQ(one.size(), two.size());
  for (size_t step = 0; step < one.size(); ++step)
    EXPECT_NEAR(two[step], one[step], 1e-5 * one[step]);
  for (const char* axis : {"--tp 2", "--cp 2"}) {
    const ProgramResult refused =
        run(on_two(train_line("no", std::string("--max_steps 2 --tuner full ") + axis)));
    EXPECT_NE(refused.exit_code, 0);
    EXPECT_THAT(refused.err, testing::HasSubstr("has linear attention")) << axis;
  }
  for (const char* format : {"mcore", "gguf"}) {
    const ProgramResult refused = run({"convert", "model", "other", "--to", format});
    EXPECT_NE(refused.exit_code, 0);
    EXPECT_THAT(refused.err, testing::HasSubstr("error: ")) << format;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, HybridChain,
                         testing::Values("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"),
                         [](const auto& info) { return std::string(info.param); });

class HybridHubFiles : public ShortTraining {};

TEST_F(HybridHubFiles, OfQwen35TheTextPartIsConvertedAndAsked) {
  nlohmann::json text = hybrid("qwen3_5_text");
  text["layer_types"] = {"linear_attention", "full_attention"};
  text["num_hidden_layers"] = 2;
  text["rope_parameters"].update({{"mrope_section", {1, 0, 0}}, {"mrope_interleaved", true}});
  text.erase("architectures");
  const nlohmann::json whole = {{"model_type", "qwen3_5"},
                                {"architectures", {"Qwen3_5ForConditionalGeneration"}},
                                {"text_config", text},
                                {"tie_word_embeddings", false},
                                {"vision_config", {{"hidden_size", 24}}}};
  NamedShapes tensors = {{"model.visual.patch_embed.proj.weight", {24, 3, 2, 4, 4}},
                         {"mtp.fc.weight", {32, 64}},
                         {"mtp.layers.0.mlp.up_proj.weight", {48, 32}},
                         {"model.language_model.embed_tokens.weight", {320, 32}},
                         {"model.language_model.norm.weight", {32}},
                         {"lm_head.weight", {320, 32}}};
  for (const char* layer : {"model.language_model.layers.0.", "model.language_model.layers.1."}) {
    for (const auto& [name, shape] : NamedShapes{{"input_layernorm.weight", {32}},
                                                 {"post_attention_layernorm.weight", {32}},
                                                 {"mlp.gate_proj.weight", {48, 32}},
                                                 {"mlp.up_proj.weight", {48, 32}},
                                                 {"mlp.down_proj.weight", {32, 48}}})
      tensors.push_back({layer + name, shape});
  }
  for (const auto& [name, shape] : NamedShapes{{"0.linear_attn.in_proj_qkv.weight", {44, 32}},
                                               {"0.linear_attn.in_proj_z.weight", {20, 32}},
                                               {"0.linear_attn.in_proj_b.weight", {4, 32}},
                                               {"0.linear_attn.in_proj_a.weight", {4, 32}},
                                               {"0.linear_attn.conv1d.weight", {44, 1, 4}},
                                               {"0.linear_attn.A_log", {4}},
                                               {"0.linear_attn.dt_bias", {4}},
                                               {"0.linear_attn.norm.weight", {5}},
                                               {"0.linear_attn.out_proj.weight", {32, 20}},
                                               {"1.self_attn.q_proj.weight", {64, 32}},
                                               {"1.self_attn.k_proj.weight", {16, 32}},
                                               {"1.self_attn.v_proj.weight", {16, 32}},
                                               {"1.self_attn.q_norm.weight", {8}},
                                               {"1.self_attn.k_norm.weight", {8}},
                                               {"1.self_attn.o_proj.weight", {32, 32}}})
    tensors.push_back({"model.language_model.layers." + name, shape});
  write("hub/config.json", whole.dump());
  write_random_tensors(*this / "hub/model.safetensors", tensors);
  const ProgramResult converted = ok({"convert", "hub", "text", "--to", "hf"});
  EXPECT_THAT(converted.err, testing::HasSubstr("1 tensors of what sees pictures are left out"));
  EXPECT_THAT(converted.err,
              testing::HasSubstr("2 tensors of layers that predict further ahead (mtp)"));
  expect_same("hub", "text");
  const nlohmann::json saved = nlohmann::json::parse(content_of(*this / "text/config.json"));
  EXPECT_EQ(saved["model_type"], "qwen3_5_text");
  EXPECT_EQ(saved["architectures"], nlohmann::json({"Qwen3_5ForCausalLM"}));
  EXPECT_EQ(saved["rope_parameters"]["mrope_section"], nlohmann::json({1, 0, 0}));
  const auto asked = [&](const char* model) {
    return ok({"infer", "--model", model, "--tokenizer", good("tokenizer").string(), "--prompt",
               "hi", "--max_new_tokens", "3", "--prompt_type", "chatml"})
        .out;
  };
  EXPECT_EQ(asked("hub"), asked("text"));
}

}  // namespace hybrid_test
}  // namespace danlu::test
