// Models with experts, and one whose norms are stored otherwise, answer from a GGUF file as from
// Hugging Face's: the same numbers of Hugging Face's own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "models/golden.h"
#include "models/weight_files.h"
#include "support/shared_data.h"
#include "support/temporary_directory.h"
#include "support/throws.h"
#include "weights/convert/layout_writer.h"
#include "weights/gguf/gguf_model.h"
#include "weights/gguf/offset_norms.h"

namespace danlu::models {
namespace {

class GgufGolden : public testing::TestWithParam<const char*> {};

TEST_P(GgufGolden, AnswersFromTheFileAreHuggingFaces) {
  DANLU_REQUIRES_SHARED();
  const auto golden_dir = test::shared_dir() / "golden/moe" / GetParam();
  const auto source = weights::open_checkpoint_source(golden_dir);
  weights::gguf::ModelPlan plan = weights::gguf::plan_model(
      source.config, source.model->tensors(), {.type = weights::gguf::TensorType::kF32});
  const test::TemporaryDirectory directory;
  const auto stored = weights::gguf::with_one_added(source.model, source.config, plan.metadata);
  weights::write_layout(*stored, plan.layout,
                        {weights::gguf::plan_file(plan.metadata, plan.tensors, plan.constants)},
                        directory.path());
  const auto model =
      load_model(directory / "model.gguf", parallel::Mesh::single(), at::kFloat, at::kCPU);
  const auto golden = weights::open_safetensors(golden_dir / "golden.safetensors");
  const GoldenReport report = compare_with_golden(*model, *golden, 1e-4);
  EXPECT_TRUE(report.passed);
  EXPECT_EQ(report.first_deviation, "");
  bool has_logits = false;
  for (const TensorDifference& difference : report.differences) {
    EXPECT_TRUE(difference.within) << difference.name << " " << difference.max_abs;
    has_logits |= difference.name == "long_logits";
  }
  EXPECT_TRUE(has_logits);
}

struct Refused {
  const char* name;
  const char* why;  ///< part of the error
};
class GgufRefusals : public testing::TestWithParam<Refused> {};

/// Goldens of models that llama.cpp would compute otherwise.
TEST_P(GgufRefusals, WhatLlamaCppTakesForGrantedIsNotSo) {
  DANLU_REQUIRES_SHARED();
  const auto source =
      weights::open_checkpoint_source(test::shared_dir() / "golden/moe" / GetParam().name);
  const std::string error = test::error_of<ModelError>([&] {
    weights::gguf::plan_model(source.config, source.model->tensors(),
                              {.type = weights::gguf::TensorType::kF32});
  });
  EXPECT_THAT(error, testing::HasSubstr(GetParam().why));
}

INSTANTIATE_TEST_SUITE_P(
    Families, GgufRefusals,
    testing::Values(Refused{"gemma2", "query_pre_attn_scalar; llama.cpp always takes it as 14"},
                    Refused{"gemma3_text", "all layers but one of 6"}),
    [](const auto& info) { return std::string(info.param.name); });

INSTANTIATE_TEST_SUITE_P(Families, GgufGolden,
                         testing::Values("glm4_moe", "phimoe", "deepseek_v2", "deepseek_v2_lite",
                                         "deepseek_v3", "gemma"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace danlu::models
