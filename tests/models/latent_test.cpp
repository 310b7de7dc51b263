// Latent attention against Hugging Face's own numbers.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <set>

#include "models/batch.h"
#include "models/golden.h"
#include "models/tensor_io.h"
#include "models/weight_files.h"
#include "ops/rms_norm.h"
#include "support/shared_data.h"
#include "support/temporary_directory.h"

namespace danlu::models {
namespace {

/// The golden's first layer alone, which has no experts.
std::unique_ptr<CausalLM> first_layer_of(const std::filesystem::path& golden) {
  const test::TemporaryDirectory directory;
  Json config = read_json_file(golden / "config.json");
  config["num_hidden_layers"] = 1;
  write_json_file(directory.path() / "config.json", config);
  const auto all = weights::open_weights(golden);
  std::vector<weights::TensorInfo> infos;
  for (const arch::ParamSpec& spec : arch::parameters_of(arch::load_model_config(directory.path())))
    infos.push_back(*all->find(spec.name));
  weights::save_safetensors(directory.path(), infos,
                            [&](size_t index) { return all->mapped(infos[index].name); });
  return load_model(directory.path(), parallel::Mesh::single(), at::kFloat, at::kCPU);
}

class LatentGolden : public testing::TestWithParam<const char*> {};

// The golden has the state between the layers, this model's one is behind the final norm.
TEST_P(LatentGolden, TheFirstLayerGivesHuggingFacesHiddenState) {
  DANLU_REQUIRES_SHARED();
  const at::NoGradGuard no_grad;
  const auto directory = test::shared_dir() / "golden" / "moe" / GetParam();
  const auto golden = weights::open_safetensors(directory / "golden.safetensors");
  const auto model = first_layer_of(directory);
  ASSERT_TRUE(model->config().latent);
  const PaddedBatch batch =
      pack_padded(read_tensor(*golden, "input_ids"), read_tensor(*golden, "attention_mask"));
  const at::Tensor between = read_tensor(*golden, "hidden_states.1");
  const at::Tensor norm = read_tensor(*weights::open_weights(directory), "model.norm.weight");
  const at::Tensor expected =
      ops::rms_norm(between.view({-1, between.size(2)}).index_select(0, batch.index_N), norm, 1e-6);
  const at::Tensor difference = model->forward_hidden(batch.input) - expected;
  EXPECT_LT(difference.abs().max().item<double>(), 5e-5);
}

/// What Hugging Face's code, or DeepSeek's own, gives of the whole model.
TEST_P(LatentGolden, LogitsLossGradientsHiddenStatesAndGreedyTokensAreEqual) {
  DANLU_REQUIRES_SHARED();
  const auto directory = test::shared_dir() / "golden" / "moe" / GetParam();
  const auto golden = weights::open_safetensors(directory / "golden.safetensors");
  const auto model = load_model(directory, parallel::Mesh::single(), at::kFloat, at::kCPU);
  const GoldenReport report = compare_with_golden(*model, *golden, 1e-4);
  EXPECT_EQ(report.first_deviation, "");
  std::set<std::string> compared;
  for (const TensorDifference& d : report.differences) {
    const bool is_gradient = d.name.rfind("grad", 0) == 0;
    EXPECT_LE(d.judged, d.name == "loss" ? 1e-5 : is_gradient ? 1e-4 : 5e-5) << d.name;
    if (is_gradient) EXPECT_LE(d.max_abs, 2e-5) << d.name;
    compared.insert(d.name);
  }
  for (const char* name : {"logits", "loss", "long_logits", "gen_output_ids", "hidden_states.1"})
    EXPECT_EQ(compared.count(name), 1u) << name;
  for (const Parameter& parameter : model->parameters()) {
    if (parameter.trainable)
      EXPECT_EQ(compared.count("grad." + parameter.name()), 1u) << parameter.name();
  }
  for (const std::string& name : report.not_compared)
    EXPECT_EQ(name.rfind("mtp_logits_", 0), 0u) << name;
}

/// Weights of 8 bits, the rest bf16: golden is float32 arithmetic on the dequantised values.
TEST(LatentGoldenOfFp8, LogitsLossAndGreedyTokensAreEqual) {
  DANLU_REQUIRES_SHARED();
  const auto directory = test::shared_dir() / "golden" / "moe" / "deepseek_v3_fp8";
  const auto golden = weights::open_safetensors(directory / "golden.safetensors");
  const auto model = load_model(directory, parallel::Mesh::single(), at::kFloat, at::kCPU);
  const GoldenReport report = compare_with_golden(*model, *golden, 1e-4);
  std::set<std::string> compared;
  for (const TensorDifference& d : report.differences) {
    EXPECT_LE(d.judged, d.name == "loss" ? 1e-5 : 5e-5) << d.name;
    compared.insert(d.name);
  }
  for (const char* name : {"logits", "loss", "long_logits", "gen_output_ids"})
    EXPECT_EQ(compared.count(name), 1u) << name;
}

INSTANTIATE_TEST_SUITE_P(Families, LatentGolden,
                         testing::Values("deepseek_v2_lite", "deepseek_v2", "deepseek_v3"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace danlu::models
