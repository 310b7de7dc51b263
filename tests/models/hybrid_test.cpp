// Models of linear attention against PyTorch's numbers (make_hybrid_goldens.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/golden.h"
#include "models/weight_files.h"
#include "weights/tensor_source.h"

namespace danlu::models {
namespace hybrid_test {

class HybridGolden : public testing::TestWithParam<const char*> {};

TEST_P(HybridGolden, LogitsLossAndGradientsEqualPyTorchs) {
  const std::filesystem::path directory =
      std::filesystem::path(DANLU_SOURCE_DIR) / "tests/models/goldens" / GetParam();
  const auto model = load_model(directory, parallel::Mesh::single(), at::kFloat, at::kCPU);
  const auto golden = weights::open_safetensors(directory / "golden.safetensors");
  const GoldenReport report = compare_with_golden(*model, *golden, 1e-4);
  for (const TensorDifference& d : report.differences)
    EXPECT_LE(d.judged, d.name == "loss" ? 1e-5 : 1e-4) << d.name << " max abs " << d.max_abs;
  EXPECT_EQ(report.differences.size(), 2 + model->parameters().size());
  EXPECT_THAT(report.not_compared, testing::IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Models, HybridGolden,
                         testing::Values("qwen3_next", "qwen3_5", "qwen3_5_moe"));

}  // namespace hybrid_test
}  // namespace danlu::models
