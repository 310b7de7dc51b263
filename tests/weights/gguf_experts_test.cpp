// Families with DeepSeek's or Phi's experts and latent attention as GGUF: llama.cpp's names, shapes
// and keys, the way back bit for bit, and what it computes otherwise.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "support/plain_gguf.h"
#include "support/shared_data.h"
#include "support/temporary_directory.h"
#include "support/throws.h"
#include "support/tiny_model.h"
#include "weights/bytes.h"
#include "weights/convert/checkpoint_source.h"
#include "weights/convert/layout_writer.h"
#include "weights/gguf/gguf_architecture.h"
#include "weights/gguf/gguf_checkpoint.h"
#include "weights/gguf/gguf_model.h"

namespace danlu::weights::gguf {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// A model of the goldens as one file.
struct GoldenFile {
  test::TemporaryDirectory directory;
  CheckpointSource model;
  ModelPlan plan;

  explicit GoldenFile(const std::string& name, const ModelOptions& options = {})
      : GoldenFile(open_checkpoint_source(test::shared_dir() / "golden/moe" / name), options) {}
  explicit GoldenFile(CheckpointSource source, const ModelOptions& options = {})
      : model(std::move(source)) {
    ModelOptions exact = options;
    exact.type = TensorType::kF32;
    plan = plan_model(model.config, model.model->tensors(), exact);
    check_layout(plan.layout);
    write_layout(*model.model, plan.layout,
                 {plan_file(plan.metadata, plan.tensors, plan.constants)}, directory.path());
  }
  std::filesystem::path file() const { return directory / "model.gguf"; }
  test::PlainGguf plain() const { return test::PlainGguf(file()); }
  std::vector<float> numbers(const std::string& name) const {
    std::vector<float> read(static_cast<size_t>(model.model->find(name)->num_elements()));
    model.model->read(name, std::as_writable_bytes(std::span(read)));
    return read;
  }
};

class GgufExperts : public testing::TestWithParam<const char*> {};

TEST_P(GgufExperts, TheModelComesBackBitForBitWithItsSettings) {
  DANLU_REQUIRES_SHARED();
  const GoldenFile written(GetParam());
  const Checkpoint opened = open_checkpoint(written.file());
  const arch::ModelConfig &ours = written.model.config, &back = opened.config;
  for (const arch::ParamSpec& spec : arch::parameters_of(ours)) {
    if (!spec.tied_to.empty()) continue;
    ASSERT_TRUE(opened.model->find(spec.name)) << spec.name;
    EXPECT_EQ(test::read_tensor(*opened.model, spec.name),
              test::read_tensor(*written.model.model, spec.name))
        << spec.name;
  }
  EXPECT_EQ(back.family, ours.family);
  EXPECT_EQ(back.experts.sparse_layer, ours.experts.sparse_layer);
  EXPECT_EQ(back.experts.score, ours.experts.score);
  EXPECT_EQ(back.experts.norm_topk, ours.experts.norm_topk);
  EXPECT_EQ(back.experts.weight_scale, ours.experts.weight_scale);
  EXPECT_EQ(back.experts.groups, ours.experts.groups);
  EXPECT_EQ(back.experts.chosen_groups, ours.experts.chosen_groups);
  EXPECT_EQ(back.experts.shared_ffn_size, ours.experts.shared_ffn_size);
  EXPECT_EQ(back.attention_scale, ours.attention_scale);
  EXPECT_EQ(back.rope.rotated_dims, ours.rope.rotated_dims);
  EXPECT_EQ(back.sliding_window, ours.sliding_window);
}

INSTANTIATE_TEST_SUITE_P(Families, GgufExperts,
                         testing::Values("glm4_moe", "phimoe", "deepseek_v2", "deepseek_v2_lite",
                                         "deepseek_v3"),
                         [](const auto& info) { return std::string(info.param); });

TEST(GgufLatent, HeadsAreTakenApartAndKeysTurnedOver) {
  DANLU_REQUIRES_SHARED();
  const GoldenFile written("deepseek_v2");
  const test::PlainGguf plain = written.plain();
  const arch::ModelConfig& c = written.model.config;
  const arch::LatentConfig& l = *c.latent;
  const auto kv = written.numbers("model.layers.1.self_attn.kv_b_proj.weight");
  const int64_t rows = l.nope_dim + l.v_dim;
  const auto keys = plain.floats("blk.1.attn_k_b.weight",
                                 static_cast<size_t>(c.num_heads * l.kv_rank * l.nope_dim));
  const auto values =
      plain.floats("blk.1.attn_v_b.weight", static_cast<size_t>(c.num_heads * l.v_dim * l.kv_rank));
  for (int64_t head = 0; head < c.num_heads; ++head) {
    for (int64_t r = 0; r < l.kv_rank; ++r) {
      for (int64_t d = 0; d < l.nope_dim; ++d)
        ASSERT_EQ(keys[static_cast<size_t>((head * l.kv_rank + r) * l.nope_dim + d)],
                  kv[static_cast<size_t>((head * rows + d) * l.kv_rank + r)]);
      for (int64_t d = 0; d < l.v_dim; ++d)
        ASSERT_EQ(values[static_cast<size_t>((head * l.v_dim + d) * l.kv_rank + r)],
                  kv[static_cast<size_t>((head * rows + l.nope_dim + d) * l.kv_rank + r)]);
    }
  }
  for (const char* name :
       {"blk.0.attn_q_a.weight", "blk.0.attn_q_a_norm.weight", "blk.0.attn_q_b.weight",
        "blk.0.attn_kv_a_mqa.weight", "blk.0.attn_kv_a_norm.weight", "blk.0.attn_output.weight",
        "blk.1.ffn_gate_inp.weight", "blk.1.ffn_up_exps.weight", "blk.1.ffn_gate_shexp.weight"})
    EXPECT_TRUE(plain.tensors.contains(name)) << name;
}

TEST(GgufLatent, KeysAreLlamaCppsOfDeepSeek) {
  DANLU_REQUIRES_SHARED();
  const GoldenFile written("deepseek_v3");
  const test::PlainGguf plain = written.plain();
  const arch::ModelConfig& c = written.model.config;
  EXPECT_EQ(plain.texts.at("general.architecture"), "deepseek2");
  const auto number = [&](const std::string& key) { return plain.numbers.at("deepseek2." + key); };
  EXPECT_EQ(number("attention.head_count_kv"), 1);
  EXPECT_EQ(number("attention.key_length"), c.latent->kv_rank + c.latent->rope_dim);
  EXPECT_EQ(number("attention.value_length"), c.latent->kv_rank);
  EXPECT_EQ(number("attention.key_length_mla"), c.latent->nope_dim + c.latent->rope_dim);
  EXPECT_EQ(number("attention.value_length_mla"), c.latent->v_dim);
  EXPECT_EQ(number("attention.q_lora_rank"), c.latent->q_rank);
  EXPECT_EQ(number("rope.dimension_count"), c.latent->rope_dim);
  EXPECT_NEAR(number("rope.scaling.yarn_log_multiplier"), 0.1, 1e-7);
  EXPECT_EQ(number("expert_gating_func"), 2);
  EXPECT_EQ(number("expert_group_count"), 4);
  EXPECT_EQ(number("expert_group_used_count"), 2);
  EXPECT_EQ(number("expert_weights_norm"), 1);
  EXPECT_EQ(number("expert_weights_scale"), 2.5);
  EXPECT_EQ(number("leading_dense_block_count"), 1);
  EXPECT_TRUE(plain.tensors.contains("blk.1.exp_probs_b.bias"));
  EXPECT_THAT(written.plan.warnings, IsEmpty());
  EXPECT_FALSE(plain.tensors.contains("blk.3.attn_norm.weight")) << "a layer that predicts ahead";
}

/// As llama.cpp's converter wrote them before its attention knew the short vectors.
TEST(GgufLatent, FilesWithOneMatrixForKeysAndValuesAreRead) {
  DANLU_REQUIRES_SHARED();
  GoldenFile written("deepseek_v2_lite", {.joins_kv_up = true});
  const arch::ModelConfig& c = written.model.config;
  Metadata old;
  for (const auto& [key, value] : written.plan.metadata) {
    if (!key.ends_with("length_mla") && !key.ends_with("attention.key_length") &&
        !key.ends_with("attention.value_length") && !key.ends_with("expert_gating_func"))
      old.emplace_back(key, value);
  }
  old.emplace_back("deepseek2.attention.key_length", static_cast<uint32_t>(c.head_dim));
  old.emplace_back("deepseek2.attention.value_length", static_cast<uint32_t>(c.latent->v_dim));
  std::filesystem::remove(written.file());
  write_layout(*written.model.model, written.plan.layout,
               {plan_file(old, written.plan.tensors, written.plan.constants)},
               written.directory.path());
  const Checkpoint opened = open_checkpoint(written.file());
  EXPECT_EQ(opened.config.family, "deepseek_v2");
  const std::string name = "model.layers.1.self_attn.kv_b_proj.weight";
  EXPECT_EQ(test::read_tensor(*opened.model, name), test::read_tensor(*written.model.model, name));
}

/// GLM-4.5's files count a layer that predicts further ahead, which is no part of the model here.
TEST(GgufExpertsOthers, BlocksBehindTheLastLayerArePassedOver) {
  DANLU_REQUIRES_SHARED();
  GoldenFile written("glm4_moe");
  const auto layers = static_cast<uint32_t>(written.model.config.num_layers);
  Metadata more;
  for (const auto& [key, value] : written.plan.metadata) {
    if (!key.ends_with(".block_count")) more.emplace_back(key, value);
  }
  more.emplace_back("glm4moe.block_count", layers + 1);
  written.plan.constants.push_back(
      {{"blk." + std::to_string(layers) + ".nextn.hnorm.weight", {2}, TensorType::kF32},
       std::string(8, '\0')});
  const auto rewrite = [&] {
    std::filesystem::remove(written.file());
    write_layout(*written.model.model, written.plan.layout,
                 {plan_file(more, written.plan.tensors, written.plan.constants)},
                 written.directory.path());
  };
  more.emplace_back("glm4moe.nextn_predict_layers", uint32_t{1});
  rewrite();
  EXPECT_EQ(open_checkpoint(written.file()).config.num_layers, layers);
  // One that no key counts is unknown.
  written.plan.constants.back().tensor.name =
      "blk." + std::to_string(layers + 1) + ".nextn.hnorm.weight";
  rewrite();
  EXPECT_THAT(test::error_of<ModelError>([&] { open_checkpoint(written.file()); }),
              HasSubstr("nextn.hnorm.weight"));
}

TEST(GgufExpertsOthers, WhatLlamaCppComputesOtherwiseIsWarnedOf) {
  DANLU_REQUIRES_SHARED();
  EXPECT_THAT(GoldenFile("phimoe").plan.warnings, ElementsAre(HasSubstr("norms without their")));
  EXPECT_THAT(GoldenFile("deepseek_v2").plan.warnings, ElementsAre(HasSubstr("two best ones")));
  EXPECT_THAT(GoldenFile("glm4_moe").plan.warnings, IsEmpty());
}

/// A small Llama-4 with what llama.cpp takes for granted.
Json published_llama4() {
  Json json = test::tiny_config("llama4_text");
  json.update({{"num_hidden_layers", 4},
               {"head_dim", 8},
               {"interleave_moe_layer_step", 2},
               {"attention_chunk_size", 8192},
               {"no_rope_layer_interval", 4},
               {"floor_scale", 8192},
               {"max_position_embeddings", 16384},
               {"rope_scaling",
                {{"rope_type", "llama3"},
                 {"factor", 16.0},
                 {"low_freq_factor", 1.0},
                 {"high_freq_factor", 1.0},
                 {"original_max_position_embeddings", 8192}}}});
  return json;
}

TEST(GgufLlama4, TheModelComesBackBitForBitWithItsSettings) {
  const test::TemporaryDirectory directory;
  test::write_tiny_model(directory.path(), published_llama4());
  const GoldenFile written(open_checkpoint_source(directory.path()));
  const test::PlainGguf plain = written.plain();
  const arch::ModelConfig& ours = written.model.config;
  EXPECT_EQ(plain.texts.at("general.architecture"), "llama4");
  EXPECT_EQ(plain.numbers.at("llama4.interleave_moe_layer_step"), 2);
  EXPECT_EQ(plain.numbers.at("llama4.expert_feed_forward_length"), ours.experts.ffn_size);
  EXPECT_EQ(plain.numbers.at("llama4.feed_forward_length"), ours.ffn_size);
  EXPECT_NE(ours.experts.ffn_size, ours.ffn_size);
  EXPECT_EQ(plain.numbers.at("llama4.expert_used_count"), ours.experts.per_token);
  // llama.cpp's names, and rows of queries in the order of the model's own pairs.
  for (const char* name :
       {"blk.0.ffn_gate.weight", "blk.1.ffn_gate_inp.weight", "blk.1.ffn_up_exps.weight",
        "blk.3.ffn_down_shexp.weight", "rope_freqs.weight"})
    EXPECT_TRUE(plain.tensors.contains(name)) << name;
  const auto queries = written.numbers("model.layers.0.self_attn.q_proj.weight");
  EXPECT_EQ(plain.floats("blk.0.attn_q.weight", queries.size()), queries);

  const Checkpoint opened = open_checkpoint(written.file());
  const arch::ModelConfig& back = opened.config;
  for (const arch::ParamSpec& spec : arch::parameters_of(ours)) {
    ASSERT_TRUE(opened.model->find(spec.name)) << spec.name;
    EXPECT_EQ(test::read_tensor(*opened.model, spec.name),
              test::read_tensor(*written.model.model, spec.name))
        << spec.name;
  }
  EXPECT_EQ(back.family, "llama4_text");
  EXPECT_EQ(back.experts.sparse_layer, ours.experts.sparse_layer);
  EXPECT_EQ(back.experts.score, ours.experts.score);
  EXPECT_EQ(back.attention_chunk, ours.attention_chunk);
  EXPECT_EQ(back.unrotated_layers, ours.unrotated_layers);
  EXPECT_EQ(back.norms_rotated, ours.norms_rotated);
  EXPECT_EQ(back.query_growth, ours.query_growth);
  EXPECT_EQ(back.query_growth_from, ours.query_growth_from);
  EXPECT_EQ(back.rope.scaling, ours.rope.scaling);
  EXPECT_EQ(back.rope.high_freq_factor, ours.rope.high_freq_factor);
  EXPECT_EQ(back.rope.factor, ours.rope.factor);
}

std::string refused(const std::string& family, const Json& changes) {
  Json json = test::tiny_config(family);
  json.update(changes);
  return test::error_of<ModelError>([&] {
    const arch::ModelConfig config = arch::parse_model_config(json, "config.json");
    plan_model(config, {}, {});
  });
}

TEST(GgufExpertsOthers, WhatItsKeysCannotSayIsRefused) {
  const Json yarn = {{"type", "yarn"},
                     {"factor", 4.0},
                     {"original_max_position_embeddings", 32},
                     {"mscale", 1.0},
                     {"mscale_all_dim", 0.5}};
  EXPECT_THAT(refused("deepseek_v3", {{"rope_scaling", yarn}}), HasSubstr("not the same number"));
  EXPECT_THAT(refused("deepseek_v3", {{"rope_interleave", false}}), HasSubstr("rope_interleave"));
  EXPECT_THAT(refused("deepseek_v3", {{"rms_norm_eps", 1e-5}}), HasSubstr("epsilon of 1e-06"));
  EXPECT_THAT(refused("deepseek_v3", {{"attention_bias", true}}), HasSubstr("no such biases"));
  EXPECT_THAT(refused("phimoe", {{"lm_head_bias", false}}), HasSubstr("biases in attention"));
  EXPECT_THAT(refused("glm4_moe", {{"moe_layer_freq", 2}, {"num_hidden_layers", 3}}),
              HasSubstr("among those with experts"));
}

TEST(GgufLlama4, WhatLlamaCppTakesForGrantedIsAsked) {
  const auto refusal = [](const Json& changes) {
    Json json = published_llama4();
    json.update(changes);
    return test::error_of<ModelError>(
        [&] { architecture_of(arch::parse_model_config(json, "config.json")); });
  };
  EXPECT_THAT(refusal({{"attention_chunk_size", 16}}), HasSubstr("attention_chunk_size 16"));
  EXPECT_THAT(refusal({{"floor_scale", 4}}), HasSubstr("floor_scale 4"));
  EXPECT_THAT(refusal({{"no_rope_layer_interval", 2}}), HasSubstr("no_rope_layers"));
  EXPECT_THAT(refusal({{"use_qk_norm", false}}), HasSubstr("use_qk_norm false"));
  EXPECT_THAT(refusal({{"moe_layers", {0, 3}}}), HasSubstr("moe_layers"));
}

}  // namespace
}  // namespace danlu::weights::gguf
