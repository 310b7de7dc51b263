// Where a distributed optimizer keeps each parameter, against what Megatron-LM core_v0.8.0's own
// ParamAndGradBuffer computed for the same model; and what of real files is refused.
#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "support/throws.h"
#include "support/tiny_model.h"
#include "weights/megatron/optimizer_layout.h"

namespace danlu::weights::megatron {
namespace {

/// No size is a multiple of the alignment, and the larger matrices fill buckets.
arch::ModelConfig odd_model(bool tied) {
  Json json = test::tiny_config("qwen2");
  json.update({{"hidden_size", 2040},
               {"intermediate_size", 5637},
               {"num_hidden_layers", 4},
               {"num_attention_heads", 15},
               {"num_key_value_heads", 5},
               {"vocab_size", 32003},
               {"tie_word_embeddings", tied},
               {"torch_dtype", "bfloat16"}});
  return arch::family_of(json).parse(json);
}

OptimizerLayout layout_of(const arch::ModelConfig& config, int64_t pp, int64_t data_parallel,
                          bool overlap) {
  Split split;
  split.pp = pp;
  const ModelLayout model = model_layout(config, split, {}, global_tensors(config, DType::kBF16));
  return optimizer_layout(
      model, {.distributed = true, .data_parallel = data_parallel, .overlap_grad_reduce = overlap});
}

struct Facts {
  int64_t data_parallel;
  bool overlap;
  int64_t numel_unpadded;
  /// First element of a parameter's state, by HF name (q for all of the fused matrix).
  std::map<std::string, int64_t> first;
};

TEST(MegatronOptimizer, FlatBuffersHaveTheOffsetsOfMegatronsOwnBuffers) {
  const std::string layers = "model.layers.";
  const std::vector<Facts> facts = {
      {8,
       false,
       312988904,
       {{"model.embed_tokens.weight", 247702784},
        {layers + "0.input_layernorm.weight", 247700736},
        {layers + "0.self_attn.o_proj.weight", 243539136},
        {layers + "0.self_attn.q_proj.bias", 236599680},
        {layers + "1.mlp.gate_proj.weight", 167995008},
        {"model.norm.weight", 65286144},
        {"lm_head.weight", 0}}},
      {8,
       true,
       312988880,
       {{"model.embed_tokens.weight", 247702760},
        {layers + "0.input_layernorm.weight", 247700712},
        {layers + "0.self_attn.o_proj.weight", 243539112},
        {layers + "0.self_attn.q_proj.bias", 236599656},
        {layers + "1.mlp.gate_proj.weight", 167994984},
        {"model.norm.weight", 65286120},
        {"lm_head.weight", 0}}},
      // More ranks make larger buckets.
      {48,
       true,
       312988824,
       {{"model.embed_tokens.weight", 247702704},
        {layers + "0.input_layernorm.weight", 247700656},
        {layers + "0.self_attn.o_proj.weight", 243539056},
        {layers + "0.self_attn.q_proj.bias", 236599600},
        {layers + "1.mlp.gate_proj.weight", 167994944},
        {"model.norm.weight", 65286120},
        {"lm_head.weight", 0}}},
  };
  for (const Facts& fact : facts) {
    SCOPED_TRACE(std::to_string(fact.data_parallel) + (fact.overlap ? " overlapping" : ""));
    const OptimizerLayout layout = layout_of(odd_model(false), 1, fact.data_parallel, fact.overlap);
    ASSERT_EQ(layout.ranks[0].size(), 1u);
    ASSERT_EQ(layout.ranks[0][0].buffers.size(), 1u);
    const RankOptimizer::Buffer& buffer = layout.ranks[0][0].buffers[0];
    EXPECT_EQ(buffer.numel_unpadded, fact.numel_unpadded);
    std::map<std::string, int64_t> first;
    for (const Section& section : layout.layout.tensors[buffer.exp_avg].sections)
      first[layout.layout.globals[section.pieces.front().global].name] = section.first;
    for (const auto& [name, at] : fact.first) EXPECT_EQ(first.at("exp_avg." + name), at) << name;
  }
}

TEST(MegatronOptimizer, ATiedEmbeddingWhoseBucketIsNotAlignedIsRefused) {
  // Megatron-LM puts the parameter 64 elements before its bucket here, and then fails.
  test::expect_throws<ModelError>([] { (void)layout_of(odd_model(true), 2, 2, true); },
                                  {"tied embedding", "2 data parallel ranks"});
}

}  // namespace
}  // namespace danlu::weights::megatron
