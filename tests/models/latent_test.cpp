// Latent attention against Hugging Face's own numbers.
#include <gtest/gtest.h>

#include <set>

#include "models/golden.h"
#include "models/weight_files.h"
#include "support/shared_data.h"

namespace danlu::models {
namespace {

class LatentGolden : public testing::TestWithParam<const char*> {};

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
  // The terms of V2's routers in these files count padding, which is never passed here.
  for (const std::string& name : report.not_compared) {
    EXPECT_TRUE(name.starts_with("mtp_logits_") || name.find("aux") != std::string::npos) << name;
  }
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
                         testing::Values("deepseek_v2_lite", "deepseek_v2", "deepseek_v3",
                                         "minicpm3"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace danlu::models
