// GPT-2, InternLM and InternLM3 as GGUF: tensors and keys as llama.cpp's converter has them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "support/throws.h"
#include "weights/exported_gguf.h"
#include "weights/gguf/gguf_checkpoint.h"

namespace danlu::weights::gguf {
namespace {

using test::tiny_config;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The keys and types of llama.cpp's converter (convert_hf_to_gguf.py, GPT2Model).
TEST(GgufFamilies, Gpt2sMatricesLieAsTheyAreMultipliedAndItsPositionsStayF32) {
  const Exported gpt2(tiny_config("gpt2"));
  // 4 heads of 8: all queries, then all keys.
  EXPECT_THAT(gpt2.gguf->find("blk.1.attn_qkv.weight")->shape, ElementsAre(96, 32));
  EXPECT_THAT(gpt2.gguf->find("blk.1.ffn_up.weight")->shape, ElementsAre(56, 32));
  EXPECT_THAT(gpt2.gguf->find("position_embd.weight")->shape, ElementsAre(128, 32));
  EXPECT_EQ(
      Exported(tiny_config("gpt2"), TensorType::kF16).gguf->find("position_embd.weight")->dtype,
      DType::kF32);
  EXPECT_EQ(gpt2.numbers_of("position_embd.weight"),
            Exported::read(*gpt2.source, "transformer.wpe.weight"));
  const auto file = open_weights(gpt2.directory / "hf");
  const std::vector<float> turned = Exported::read(*file, "transformer.h.1.attn.c_attn.weight");
  const std::vector<float> row = gpt2.gguf_row("blk.1.attn_qkv.weight", 33);
  ASSERT_EQ(row.size(), 32u);
  for (size_t i = 0; i < row.size(); ++i) EXPECT_EQ(row[i], turned[i * 96 + 33]) << i;
  EXPECT_EQ(key<std::string>(gpt2.plan, "general.architecture"), "gpt2");
  EXPECT_EQ(key<float>(gpt2.plan, "gpt2.attention.layer_norm_epsilon"), 1e-5f);
  EXPECT_EQ(key<uint32_t>(gpt2.plan, "gpt2.context_length"), 128u);
}

/// Published InternLM3: nothing is scaled up to the context that the file names.
TEST(GgufFamilies, DynamicRopeIsPlainUpToTheContext) {
  Json json = tiny_config("internlm3");
  json["qkv_bias"] = false;
  json["rope_scaling"] = {{"rope_type", "dynamic"}, {"factor", 6.0}};
  const Exported model(json);
  EXPECT_EQ(find(model.plan.metadata, "llama.rope.scaling.type"), nullptr);
  EXPECT_EQ(key<uint32_t>(model.plan, "llama.context_length"), 128u);
  EXPECT_THAT(model.plan.notes, ElementsAre(HasSubstr("beyond 128 tokens answers differ")));
  const Checkpoint opened = open_checkpoint(model.file());
  EXPECT_EQ(opened.config.rope.theta, model.config.rope.theta);
  EXPECT_EQ(opened.config.head_dim, model.config.head_dim);
  EXPECT_EQ(Exported::read(*opened.model, "model.layers.1.self_attn.k_proj.weight"),
            Exported::read(*model.source, "model.layers.1.self_attn.k_proj.weight"));
}

/// As llama.cpp reads files that have a factor and no type beside it.
TEST(GgufFamilies, AFactorOfRopeWithoutATypeIsLinear) {
  Json json = tiny_config("llama");
  json["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 4.0}};
  const Exported model(json);
  std::string bytes = read_file(model.file());
  const std::string type = "llama.rope.scaling.type";
  ASSERT_NE(bytes.find(type), std::string::npos);
  bytes.replace(bytes.find(type), type.size(), "llama.rope.scaling.tipe");
  const test::TemporaryDirectory folder;
  write_file_atomic(folder / "untyped.gguf", bytes);
  const Checkpoint opened = open_checkpoint(folder / "untyped.gguf");
  EXPECT_EQ(opened.config.rope.scaling, arch::RopeScaling::kLinear);
  EXPECT_EQ(opened.config.rope.factor, 4.0);
}

/// A Llama with biases around attention, to llama.cpp.
TEST(GgufFamilies, InternlmIsALlama) {
  const Exported model(tiny_config("internlm"));
  EXPECT_EQ(key<std::string>(model.plan, "general.architecture"), "llama");
  const Checkpoint opened = open_checkpoint(model.file());
  EXPECT_EQ(opened.config.family, "llama");
  ASSERT_EQ(opened.model->tensors().size(), model.source->tensors().size());
  for (const TensorInfo& info : model.source->tensors()) {
    ASSERT_NE(opened.model->find(info.name), nullptr) << info.name;
    EXPECT_EQ(Exported::read(*opened.model, info.name), Exported::read(*model.source, info.name))
        << info.name;
  }
}

/// The others, whose rows and stacks other tests look at one by one.
TEST(GgufFamilies, EveryTensorOfTheOthersComesBack) {
  for (const char* family : {"llama", "mistral", "qwen2", "qwen3", "internlm2", "internlm3",
                             "mixtral", "qwen2_moe", "qwen3_moe"}) {
    SCOPED_TRACE(family);
    Json json = tiny_config(family);
    if (json["model_type"] == "qwen3_moe") json["norm_topk_prob"] = true;
    if (json["model_type"] == "internlm3") json["qkv_bias"] = false;
    const Exported model(json);
    const Checkpoint opened = open_checkpoint(model.file());
    EXPECT_EQ(opened.config.head_dim, model.config.head_dim);
    EXPECT_EQ(opened.config.experts.count, model.config.experts.count);
    ASSERT_EQ(opened.model->tensors().size(), model.source->tensors().size());
    for (const TensorInfo& info : model.source->tensors()) {
      ASSERT_NE(opened.model->find(info.name), nullptr) << info.name;
      EXPECT_EQ(Exported::read(*opened.model, info.name), Exported::read(*model.source, info.name))
          << info.name;
    }
  }
}

/// A Gemma as llama.cpp takes every one of that generation.
Json gemma(const std::string& family) {
  Json json = tiny_config(family);
  if (family != "gemma") json["query_pre_attn_scalar"] = json["head_dim"];
  if (family == "gemma2") json["final_logit_softcapping"] = 3.0;
  if (family == "gemma3_text") {
    json["sliding_window_pattern"] = 6;
    json["num_hidden_layers"] = 7;
    json["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 8.0}};
  }
  return json;
}

void expect_comes_back(const Exported& model) {
  const Checkpoint opened = open_checkpoint(model.file());
  EXPECT_EQ(opened.config.family, model.config.family);
  ASSERT_EQ(opened.model->tensors().size(), model.source->tensors().size());
  for (const TensorInfo& info : model.source->tensors()) {
    ASSERT_NE(opened.model->find(info.name), nullptr) << info.name;
    EXPECT_EQ(opened.model->find(info.name)->shape, info.shape) << info.name;
    EXPECT_EQ(Exported::read(*opened.model, info.name), Exported::read(*model.source, info.name))
        << info.name;
  }
}

/// Keys and names of llama.cpp's converter (convert_hf_to_gguf.py, GemmaModel, Gemma2Model,
/// Gemma3Model).
TEST(GgufFamilies, GemmasNormsHaveOneAddedAndComeBackToTheBit) {
  for (const char* family : {"gemma", "gemma2", "gemma3_text"}) {
    SCOPED_TRACE(family);
    const Exported model(gemma(family));
    expect_comes_back(model);
    const auto norms = Exported::read(*model.source, "model.layers.1.input_layernorm.weight");
    const auto stored = model.numbers_of("blk.1.attn_norm.weight");
    for (size_t i = 0; i < norms.size(); ++i) EXPECT_EQ(stored[i], 1.0f + norms[i]) << i;
    EXPECT_EQ(model.gguf->find("output.weight"), nullptr);
    // Random numbers have more bits than 1 + w keeps.
    EXPECT_NE(find(model.plan.metadata, "danlu.norms"), nullptr);
    const arch::ModelConfig read = open_checkpoint(model.file()).config;
    EXPECT_EQ(read.head_dim, model.config.head_dim);
    EXPECT_EQ(read.sliding_window, model.config.sliding_window);
    EXPECT_NEAR(read.attention_scale, model.config.attention_scale, 1e-12);
    EXPECT_EQ(read.attention_softcap, model.config.attention_softcap);
    EXPECT_EQ(read.logit_softcap, model.config.logit_softcap);
    EXPECT_EQ(read.rope.theta, model.config.rope.theta);
    EXPECT_EQ(read.rope.factor, model.config.rope.factor);
    EXPECT_EQ(read.window_rope.has_value(), model.config.window_rope.has_value());
    EXPECT_EQ(read.embedding_scale, model.config.embedding_scale);
  }
  const Exported two(gemma("gemma2"));
  EXPECT_EQ(key<std::string>(two.plan, "general.architecture"), "gemma2");
  EXPECT_EQ(key<uint32_t>(two.plan, "gemma2.attention.key_length"), 12u);
  EXPECT_EQ(key<uint32_t>(two.plan, "gemma2.attention.sliding_window"), 3u);
  EXPECT_EQ(key<float>(two.plan, "gemma2.attn_logit_softcapping"), 2.0f);
  EXPECT_EQ(key<float>(two.plan, "gemma2.final_logit_softcapping"), 3.0f);
  EXPECT_EQ(
      two.numbers_of("blk.0.post_ffw_norm.weight")[3],
      1.0f + Exported::read(*two.source, "model.layers.0.post_feedforward_layernorm.weight")[3]);
  EXPECT_NE(two.gguf->find("blk.0.ffn_norm.weight"), nullptr);
  EXPECT_NE(two.gguf->find("blk.0.post_attention_norm.weight"), nullptr);
  const Exported three(gemma("gemma3_text"));
  EXPECT_EQ(key<std::string>(three.plan, "general.architecture"), "gemma3");
  EXPECT_EQ(key<float>(three.plan, "gemma3.rope.scaling.factor"), 8.0f);
  EXPECT_NE(three.gguf->find("blk.0.attn_q_norm.weight"), nullptr);
  EXPECT_TRUE(three.plan.notes.empty());
}

/// llama.cpp takes Gemma 2's window as 4096 where a file says none, and reads a cap and another
/// pattern of Gemma 3's.
TEST(GgufFamilies, KeysOfOtherFilesOfGemmaCount) {
  const Exported two(gemma("gemma2"));
  const auto windows =
      open_checkpoint(two.file_without("gemma2.attention.sliding_window")).config.sliding_window;
  EXPECT_EQ(windows.at(0), 4096);
  EXPECT_EQ(windows.at(1), 0);
  const Exported three(gemma("gemma3_text"));
  const auto refusal = [&](const std::string& key, const Value& value) {
    return test::error_of<ModelError>([&] { open_checkpoint(three.file_with(key, value)); });
  };
  const std::string cap = "gemma3.final_logit_softcapping",
                    pattern = "gemma3.attention.sliding_window_pattern";
  EXPECT_THAT(refusal(cap, 30.0f), HasSubstr("the key " + cap + " is 30; this version reads 0"));
  EXPECT_THAT(refusal(pattern, uint32_t{3}), HasSubstr(pattern + " is 3; this version reads 6"));
  EXPECT_NO_THROW(open_checkpoint(three.file_with(cap, 0.0f)));
  EXPECT_NO_THROW(open_checkpoint(three.file_with(pattern, uint32_t{6})));
}

/// A file of which somebody changed a norm keeps the change.
TEST(GgufFamilies, NormsThatWereChangedSinceAreThoseOfTheFile) {
  const Exported model(gemma("gemma"));
  const std::string name = "model.norm.weight";
  std::vector<float> exact =
      find(model.plan.metadata, "danlu.norms")
          ? std::get<Array>(*find(model.plan.metadata, "danlu.norms")).as<float>()
          : std::vector<float>();
  ASSERT_GT(exact.size(), 32u);
  for (float& number : exact) number += 0.5f;
  const Checkpoint opened = open_checkpoint(model.file_with("danlu.norms", number_array(exact)));
  const auto norms = Exported::read(*model.source, name),
             read = Exported::read(*opened.model, name);
  for (size_t i = 0; i < norms.size(); ++i) EXPECT_EQ(read[i], (1.0f + norms[i]) - 1.0f) << i;
}

/// In BF16, as they are published, 1 + w has room for every norm.
TEST(GgufFamilies, PublishedNormsNeedNoKeyOfOurs) {
  const test::TemporaryDirectory directory;
  const arch::ModelConfig config =
      test::write_tiny_model(directory / "hf", gemma("gemma2"), 1, DType::kBF16);
  const auto source = open_weights(directory / "hf");
  Metadata metadata;
  with_one_added(source, config, metadata);
  EXPECT_TRUE(metadata.empty());
}

/// Qwen 1: q, k and v stay one matrix, and the width of the MLP is counted twice.
TEST(GgufFamilies, Qwen1ComesBackUnderItsOwnKeys) {
  const Exported model(tiny_config("qwen"));
  expect_comes_back(model);
  EXPECT_EQ(key<std::string>(model.plan, "general.architecture"), "qwen");
  EXPECT_EQ(key<uint32_t>(model.plan, "qwen.feed_forward_length"), 112u);
  EXPECT_THAT(model.gguf->find("blk.1.attn_qkv.weight")->shape, ElementsAre(96, 32));
  EXPECT_THAT(model.gguf->find("blk.1.attn_qkv.bias")->shape, ElementsAre(96));
  EXPECT_EQ(model.numbers_of("blk.1.ffn_gate.weight"),
            Exported::read(*model.source, "transformer.h.1.mlp.w2.weight"));
  EXPECT_NE(model.gguf->find("output.weight"), nullptr);
  const Checkpoint opened = open_checkpoint(model.file());
  EXPECT_EQ(opened.config.ffn_size, model.config.ffn_size);
  EXPECT_EQ(opened.config.max_positions, model.config.max_positions);
  EXPECT_EQ(opened.config.rope.theta, model.config.rope.theta);
}

TEST(GgufFamilies, WhatLlamaCppWouldComputeOtherwiseIsRefused) {
  const auto refusal = [](Json json) {
    return test::error_of<ModelError>([&] { Exported model(json); });
  };
  const auto with = [](const char* family, const Json& more) {
    Json json = gemma(family);
    json.update(more);
    return json;
  };
  EXPECT_THAT(refusal(tiny_config("minicpm3")), HasSubstr("minicpm3"));
  EXPECT_THAT(refusal(with("gemma2", {{"query_pre_attn_scalar", 10}})),
              HasSubstr("query_pre_attn_scalar; llama.cpp always takes it as 12"));
  EXPECT_THAT(refusal(with("gemma2", {{"final_logit_softcapping", nullptr}})), HasSubstr("caps"));
  EXPECT_THAT(refusal(with("gemma3_text", {{"sliding_window_pattern", 2}})),
              HasSubstr("all layers but one of 6"));
  EXPECT_THAT(refusal(with("gemma3_text", {{"rope_local_base_freq", 500.0}})),
              HasSubstr("rope_local_base_freq"));
  EXPECT_THAT(refusal(with("gemma", {{"tie_word_embeddings", false}})),
              HasSubstr("tie_word_embeddings is false; llama.cpp's gemma takes"));
  EXPECT_THAT(refusal(with("gemma", {{"hidden_activation", "gelu"}})), HasSubstr("tanh"));
  Json biased = tiny_config("qwen");
  biased["no_bias"] = false;
  EXPECT_THAT(refusal(biased), HasSubstr("biases"));
}

}  // namespace
}  // namespace danlu::weights::gguf
