// What Llama-4's attention has beside the other families': chunks, layers without rotary embedding
// whose queries grow, queries and keys of length one.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>

#include "models/causal_lm.h"
#include "models/weight_files.h"
#include "support/tiny_model.h"

namespace danlu::models {
namespace chunked_layers_test {

std::unique_ptr<CausalLM> model_with(const std::function<void(arch::ModelConfig&)>& change,
                                     int64_t layers) {
  Json json = test::tiny_config("llama");
  json["num_hidden_layers"] = layers;
  arch::ModelConfig config = arch::parse_model_config(json, "test");
  change(config);
  auto model = std::make_unique<CausalLM>(config, parallel::Mesh::single(), at::kFloat, at::kCPU);
  initialize(*model, 7);
  const at::NoGradGuard no_grad;
  for (const Parameter& p : model->parameters()) {
    if (p.tensor.dim() == 2) p.tensor.mul_(10);
  }
  return model;
}

at::Tensor logits_of(const CausalLM& model, const at::Tensor& ids, int64_t first_position = 0) {
  const at::NoGradGuard no_grad;
  ForwardInput input;
  input.ids_N = ids;
  input.positions_N = at::arange(first_position, first_position + ids.size(0));
  input.segments = {{0, ids.size(0)}, {0, ids.size(0)}};
  return model.logits(model.forward_hidden(input));
}

double distance(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

const at::Tensor& ids() {
  static const at::Tensor seven = at::tensor({5, 9, 2, 7, 31, 40, 3}, at::kLong);
  return seven;
}

// Rotary embedding turns by differences of positions: a chunk is a text of its own.
TEST(ChunkedAttention, EachChunkIsATextOfItsOwn) {
  const auto chunked = model_with([](arch::ModelConfig& c) { c.attention_chunk = 3; }, 2);
  const at::Tensor whole = logits_of(*chunked, ids());
  EXPECT_LT(distance(whole.narrow(0, 3, 3), logits_of(*chunked, ids().narrow(0, 3, 3), 3)), 2e-5);
  EXPECT_LT(distance(whole.narrow(0, 6, 1), logits_of(*chunked, ids().narrow(0, 6, 1), 6)), 2e-5);
  const auto plain = model_with([](arch::ModelConfig&) {}, 2);
  EXPECT_LT(distance(whole.narrow(0, 0, 3), logits_of(*plain, ids()).narrow(0, 0, 3)), 2e-5);
  EXPECT_GT(distance(whole.narrow(0, 3, 4), logits_of(*plain, ids()).narrow(0, 3, 4)), 1e-2);
}

TEST(ChunkedAttention, UnrotatedLayersSeeEverythingAndNoPositions) {
  const auto model = model_with(
      [](arch::ModelConfig& c) {
        c.attention_chunk = 3;
        c.unrotated_layers = {0, 1};
      },
      2);
  EXPECT_EQ(distance(logits_of(*model, ids()), logits_of(*model, ids(), 50)), 0);
  // The first token is seen from the last chunk.
  at::Tensor other = ids().clone();
  other[0] = 11;
  EXPECT_GT(distance(logits_of(*model, ids())[6], logits_of(*model, other)[6]), 1e-3);
}

// The last token's logits follow from its own query alone where there is one layer: a factor on it
// is a factor on the scale of scores.
TEST(ChunkedAttention, QueriesOfUnrotatedLayersGrowWithTheirPosition) {
  const auto grown = model_with(
      [](arch::ModelConfig& c) {
        c.unrotated_layers = {0};
        c.query_growth = 0.5;
        c.query_growth_from = 2.0;
      },
      1);
  const double factor = 1 + 0.5 * std::log(1 + std::floor(7 / 2.0));
  const auto scaled = model_with(
      [&](arch::ModelConfig& c) {
        c.unrotated_layers = {0};
        c.attention_scale = factor / std::sqrt(8.0);
      },
      1);
  const auto plain = model_with([](arch::ModelConfig& c) { c.unrotated_layers = {0}; }, 1);
  EXPECT_LT(distance(logits_of(*grown, ids())[6], logits_of(*scaled, ids())[6]), 2e-5);
  EXPECT_GT(distance(logits_of(*grown, ids())[6], logits_of(*plain, ids())[6]), 1e-3);
}

TEST(ChunkedAttention, TheLengthsOfRotatedQueriesAndKeysDoNotMatter) {
  const auto normed = model_with(
      [](arch::ModelConfig& c) {
        c.norms_rotated = true;
        c.norm_eps = 1e-9;
      },
      1);
  const at::Tensor before = logits_of(*normed, ids());
  const at::NoGradGuard no_grad;
  for (const Parameter& p : normed->parameters()) {
    if (p.spec.role == arch::Role::kQ || p.spec.role == arch::Role::kK) p.tensor.mul_(3);
  }
  EXPECT_LT(distance(before, logits_of(*normed, ids())), 2e-4);
  for (const Parameter& p : normed->parameters()) {
    if (p.spec.role == arch::Role::kQ) p.tensor[0].mul_(3);
  }
  EXPECT_GT(distance(before, logits_of(*normed, ids())), 1e-3);
}

}  // namespace chunked_layers_test
}  // namespace danlu::models
