// What PiSSA and OLoRA take from a weight, against torch (adapter_start.json, written by
// make_adapter_start_goldens.py).
#include "models/adapter_start.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"

namespace danlu::models {
namespace adapter_start_test {

using weights::AdapterStart;

at::Tensor tensor_of(const Json& values) {
  return at::tensor(values.get<std::vector<double>>(), at::TensorOptions(at::kFloat));
}

void expect_near(const at::Tensor& got, const at::Tensor& want, double tolerance,
                 const char* what) {
  ASSERT_EQ(got.numel(), want.numel()) << what;
  EXPECT_LE((got.flatten() - want).abs().max().item<double>(), tolerance) << what;
}

TEST(AdapterStart, TakesWhatTorchTakes) {
  for (const Json& golden :
       read_json_file(std::string(DANLU_SOURCE_DIR) + "/tests/models/adapter_start.json")) {
    const int64_t rows = golden.at("rows"), cols = golden.at("cols"), rank = golden.at("rank");
    const double scale = golden.at("scale");
    const at::Tensor weight = tensor_of(golden.at("weight")).view({rows, cols});
    const StartFactors pissa = start_factors(weight, rank, scale, AdapterStart::named("pissa"), 1);
    EXPECT_EQ(pissa.a_RI.sizes(), (at::IntArrayRef{rank, cols}));
    EXPECT_EQ(pissa.b_OR.sizes(), (at::IntArrayRef{rows, rank}));
    expect_near(pissa.b_OR.matmul(pissa.a_RI), tensor_of(golden.at("pissa")), 1e-5, "pissa");
    // The root of a singular value is on both sides.
    expect_near(pissa.a_RI.norm(2, 1), tensor_of(golden.at("a_lengths")), 1e-5, "rows of A");
    expect_near(pissa.b_OR.norm(2, 0), tensor_of(golden.at("b_lengths")), 1e-5, "columns of B");
    const StartFactors about =
        start_factors(weight, rank, scale, AdapterStart::named("pissa_niter_16"), 1);
    expect_near(about.b_OR.matmul(about.a_RI), tensor_of(golden.at("pissa")), 1e-4, "niter");
    expect_near(about.a_RI.norm(2, 1), tensor_of(golden.at("a_lengths")), 1e-4, "niter's A");
    const StartFactors olora = start_factors(weight, rank, scale, AdapterStart::named("olora"), 1);
    expect_near(olora.b_OR.matmul(olora.a_RI), tensor_of(golden.at("olora")), 1e-5, "olora");
    expect_near(olora.b_OR.norm(2, 0), tensor_of(golden.at("olora_b_lengths")), 1e-5, "Q");
  }
}

TEST(AdapterStart, IsNamedInPeftsWords) {
  for (const char* name : {"true", "gaussian", "pissa", "pissa_niter_4", "olora"})
    EXPECT_EQ(AdapterStart::named(name).name(), name);
  EXPECT_EQ(AdapterStart::named("True").name(), "true");
  for (const char* wrong : {"", "false", "pissa_niter_", "pissa_niter_0", "pissa_niter_x",
                            "pissa_niter_-1", "loftq", "lora-ga"})
    EXPECT_THROW(AdapterStart::named(wrong), UsageError) << wrong;
}

TEST(AdapterStart, PlainAdaptersOfTwiceTheRankHaveTheSameScale) {
  weights::PeftConfig config;
  config.rank = 6;
  config.alpha = 9;
  config.rank_pattern = {{"q_proj", 4}};
  config.alpha_pattern = {{"k_proj", 5.0}};
  for (const bool rslora : {false, true}) {
    config.rslora = rslora;
    const weights::PeftConfig twice = weights::with_fixed_half(config);
    for (const char* module : {"layers.0.q_proj", "layers.0.k_proj", "layers.0.v_proj"}) {
      EXPECT_EQ(twice.rank_of(module), 2 * config.rank_of(module));
      EXPECT_NEAR(twice.scale_of(module), config.scale_of(module), 1e-12) << module;
    }
  }
}

}  // namespace adapter_start_test
}  // namespace danlu::models
