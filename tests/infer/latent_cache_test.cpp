// What latent attention keeps of a token, and that answers from it are those of whole passes.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include "infer/kv_cache.h"
#include "infer/step.h"
#include "infer/tested_device.h"
#include "models/adapters.h"
#include "models/weight_files.h"
#include "ops/kernels.h"
#include "settings/model_setup.h"
#include "support/tiny_model.h"

namespace danlu::infer {
namespace latent_cache_test {

std::unique_ptr<models::CausalLM> tiny(const Json& changes = Json::object(),
                                       at::ScalarType dtype = at::kFloat) {
  const test::TemporaryDirectory directory;
  Json config = test::tiny_config("deepseek_v3");
  config["rope_scaling"] = {{"type", "yarn"},
                            {"factor", 40.0},
                            {"original_max_position_embeddings", 4},
                            {"mscale", 1.0},
                            {"mscale_all_dim", 1.0}};
  config["max_position_embeddings"] = 512;
  for (const auto& [key, value] : changes.items()) config[key] = value;
  test::write_tiny_model(directory.path(), config, 3);
  return models::load_model(directory.path(), parallel::Mesh::single(), dtype, tested_device());
}

std::vector<text::TokenId> ids_of(int64_t count, int64_t seed) {
  std::vector<text::TokenId> ids;
  for (int64_t i = 0; i < count; ++i)
    ids.push_back(static_cast<text::TokenId>((i * i * 7 + 13 * seed + i) % 97));
  return ids;
}

/// Logits of the last token of a pass over everything.
at::Tensor whole(const models::CausalLM& model, const std::vector<text::TokenId>& ids) {
  SequenceCache cache(model.config(), model.dtype(), model.device());
  return next_logits(model, cache, {{cache.add(), ids}})[0];
}

/// Feeds parts of two sequences of one batch, which differ in length, and compares what each step
/// gives with whole passes.
void expect_steps_equal_whole(const models::CausalLM& model, const std::vector<int64_t>& counts,
                              double limit) {
  SequenceCache cache(model.config(), model.dtype(), model.device());
  const std::vector<text::TokenId> first = ids_of(400, 1), second = ids_of(400, 2);
  const SequenceId a = cache.add(), b = cache.add();
  int64_t done_a = 0, done_b = 0;
  for (const int64_t count : counts) {
    const int64_t count_b = count == 1 ? 1 : count + 3;
    const auto part = [](const auto& ids, int64_t from, int64_t number) {
      return std::vector<text::TokenId>(ids.begin() + from, ids.begin() + from + number);
    };
    const at::Tensor logits = next_logits(
        model, cache,
        {{a, part(first, done_a, count), nullptr}, {b, part(second, done_b, count_b), nullptr}});
    done_a += count;
    done_b += count_b;
    const at::Tensor of_a = whole(model, part(first, 0, done_a)),
                     of_b = whole(model, part(second, 0, done_b));
    EXPECT_LT((logits[0] - of_a).abs().max().item<double>(), limit) << done_a;
    EXPECT_LT((logits[1] - of_b).abs().max().item<double>(), limit) << done_b;
  }
}

// A prompt, tokens one by one, a few at once, and so many that keys are made of all rows again.
const std::vector<int64_t> kCounts = {37, 1, 1, 5, 1, 20, 140, 1};

TEST(LatentCache, AbsorbedStepsEqualExpandedPasses) {
  expect_steps_equal_whole(*tiny(), kCounts, 1e-5);
  expect_steps_equal_whole(*tiny({{"q_lora_rank", nullptr}}), kCounts, 1e-5);
}

TEST(LatentCache, AbsorbedStepsEqualExpandedPassesWithoutKernels) {
  ops::set_kernels(ops::Kernels::kComposite);
  expect_steps_equal_whole(*tiny(), kCounts, 1e-5);
  ops::set_kernels(ops::Kernels::kFused);
}

TEST(LatentCache, AdaptersAreInTheAbsorbedWeight) {
  for (const bool dora : {false, true}) {
    const auto model = tiny();
    weights::PeftConfig lora = settings::new_adapters();
    lora.rank = 3;
    lora.dora = dora;
    models::add_lora(*model, lora, 5);
    const at::NoGradGuard no_grad;
    // Its own draws, whatever ran before; wide ones make logits whose rounding exceeds the limit.
    at::Generator draws = at::detail::createCPUGenerator(11);
    for (const auto& parameter : model->adapter_parameters()) {
      if (parameter.name().find("lora_B") != std::string::npos)
        parameter.tensor.detach().normal_(0, 0.1, draws);
    }
    expect_steps_equal_whole(*model, {9, 1, 1}, 2e-5);
  }
}

TEST(LatentCache, KeepsTheShortVectorAndTheRotatedKeyAlone) {
  const auto model = tiny();
  SequenceCache cache(model->config(), at::kBFloat16, tested_device());
  // kv_lora_rank 12 and qk_rope_head_dim 4, two layers, of two bytes.
  EXPECT_EQ(cache.pool().page_bytes(), ops::kPageTokens * 2 * (12 + 4) * 2);
}

}  // namespace latent_cache_test
}  // namespace danlu::infer
