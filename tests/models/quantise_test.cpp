// Models whose matrices are held in blocks, against the same model with the blocks' numbers.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/number_blocks.h"
#include "models/adapters.h"
#include "models/causal_lm.h"
#include "models/weight_files.h"
#include "support/temporary_directory.h"
#include "support/throws.h"
#include "support/tiny_model.h"

namespace danlu::models {
namespace quantise_test {

struct Pair {
  test::TemporaryDirectory directory;
  std::unique_ptr<CausalLM> blocks, dense;  ///< `dense` holds the numbers of the blocks

  explicit Pair(const std::string& family, BlockType type, const Json& changes = Json::object()) {
    Json config = test::tiny_config(family);
    config.update(changes);
    test::write_tiny_model(directory.path(), config);
    const auto source = weights::open_checkpoint_source(directory.path(), {.all_tensors = true});
    const auto load = [&](const Quantisation& quantisation) {
      return load_model(source, parallel::Mesh::single(), at::kFloat, at::kCPU, {}, {},
                        quantisation);
    };
    blocks = load({.make = type});
    dense = load({});
    const at::NoGradGuard no_grad;
    const std::vector<Parameter> from = blocks->parameters(), to = dense->parameters();
    for (size_t i = 0; i < from.size(); ++i)
      if (from[i].quantized) to[i].tensor.copy_(from[i].quantized->dense());
  }

  static at::Tensor logits(const CausalLM& model, int64_t tokens = 12) {
    const at::NoGradGuard no_grad;
    ForwardInput input;
    input.ids_N = at::arange(3, 3 + tokens, at::TensorOptions(at::kLong));
    input.positions_N = at::arange(tokens, at::TensorOptions(at::kLong));
    input.segments = {{0, tokens}, {0, tokens}};
    return model.logits(model.forward_hidden(input));
  }
};

double length(const at::Tensor& x) { return x.square().sum().sqrt().item<double>(); }

TEST(Quantise, LogitsAreThoseOfTheBlocksNumbersButForTheInputsRounding) {
  for (const char* family : {"llama", "qwen2", "qwen3", "internlm2", "baichuan"}) {
    for (const BlockType type : {BlockType::kQ8_0, BlockType::kQ4_0}) {
      const Pair pair(family, type);
      const at::Tensor exact = Pair::logits(*pair.dense);
      const double off = length(Pair::logits(*pair.blocks) - exact) / length(exact);
      // An input is off by a 127th of its group's largest over sqrt(12), half a per cent of its own
      // length at most where the largest is twice the mean; there are a dozen products in a row.
      EXPECT_LT(off, 12 * 0.005) << family;
      EXPECT_GT(off, 1e-5) << family;
    }
  }
}

TEST(Quantise, EveryMatrixWithWholeBlocksIsHeldSo) {
  const Pair pair("llama", BlockType::kQ4_0);
  for (const Parameter& parameter : pair.blocks->parameters()) {
    const std::vector<int64_t>& shape = parameter.spec.shape;
    EXPECT_EQ(parameter.quantized != nullptr, shape.size() == 2 && shape[1] % 32 == 0)
        << parameter.name();
    if (!parameter.quantized) continue;
    const bool is_end =
        parameter.spec.role == arch::Role::kEmbedding || parameter.spec.role == arch::Role::kHead;
    const auto* blocks = dynamic_cast<const ops::BlockWeight*>(parameter.quantized.get());
    ASSERT_NE(blocks, nullptr);
    EXPECT_EQ(blocks->type(), is_end ? BlockType::kQ8_0 : BlockType::kQ4_0);
    EXPECT_FALSE(parameter.tensor.storage().data()) << parameter.name();
  }
  EXPECT_LT(held_bytes(*pair.blocks).all, held_bytes(*pair.dense).all / 2);
  EXPECT_EQ(held_bytes(*pair.dense).in_blocks, 0);
}

/// Each expert's matrices are in blocks of their own, 34 or 18 bytes for 32 numbers, so that a
/// token reads those of the experts that it is sent to.
TEST(Quantise, ExpertsAreHeldInBlocksEach) {
  // Every token goes to all of them: what rounds otherwise chooses no other ones.
  const Json sizes = {{"num_local_experts", 4},
                      {"num_experts", 4},
                      {"num_experts_per_tok", 4},
                      {"hidden_size", 64},
                      {"intermediate_size", 96},
                      {"moe_intermediate_size", 96},
                      {"shared_expert_intermediate_size", 96}};
  for (const char* family : {"mixtral", "qwen2_moe", "qwen3_moe"}) {
    for (const BlockType type : {BlockType::kQ8_0, BlockType::kQ4_0}) {
      const Pair pair(family, type, sizes);
      int64_t of_experts = 0;
      for (const Parameter& parameter : pair.blocks->parameters()) {
        if (parameter.spec.expert < 0) continue;
        ++of_experts;
        ASSERT_NE(parameter.quantized, nullptr) << parameter.name();
        EXPECT_EQ(parameter.quantized->size_bytes(),
                  64 * 96 / 32 * (type == BlockType::kQ8_0 ? 34 : 18));
      }
      EXPECT_GT(of_experts, 0) << family;
      const at::Tensor exact = Pair::logits(*pair.dense);
      const double off = length(Pair::logits(*pair.blocks) - exact) / length(exact);
      EXPECT_LT(off, 12 * 0.005) << family;
      EXPECT_GT(off, 1e-5) << family;
    }
  }
}

TEST(Quantise, ATiedHeadUsesTheEmbeddingsBlocks) {
  const Pair pair("llama", BlockType::kQ8_0, {{"tie_word_embeddings", true}});
  const at::Tensor exact = Pair::logits(*pair.dense);
  EXPECT_LT(length(Pair::logits(*pair.blocks) - exact), 12 * 0.005 * length(exact));
}

TEST(Quantise, AnAdapterStandsOnBlocksButDoraDoesNot) {
  const Pair pair("llama", BlockType::kQ8_0);
  const at::Tensor before = Pair::logits(*pair.blocks);
  weights::PeftConfig lora;
  lora.target_modules = {"q_proj", "up_proj"};
  lora.dora = true;
  EXPECT_THAT(test::error_of<UsageError>([&] { add_lora(*pair.blocks, lora, 1); }),
              testing::HasSubstr("DoRA needs the numbers of"));
  lora.dora = false;
  add_lora(*pair.blocks, lora, 1);
  // B is zero.
  EXPECT_LT((Pair::logits(*pair.blocks) - before).abs().max().item<double>(), 1e-6);
}

}  // namespace quantise_test
}  // namespace danlu::models
