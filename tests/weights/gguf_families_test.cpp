// GPT-2, InternLM and InternLM3 as GGUF: tensors and keys as llama.cpp's converter has them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
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

TEST(GgufFamilies, WhatIsNotWrittenIsRefusedByName) {
  for (const char* family : {"gemma", "gemma2", "gemma3_text", "qwen", "minicpm3"}) {
    EXPECT_THAT(test::error_of<ModelError>([&] { Exported model(tiny_config(family)); }),
                HasSubstr(family));
  }
}

}  // namespace
}  // namespace danlu::weights::gguf
