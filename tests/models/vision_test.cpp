// A model that sees pictures against the tensors that another implementation gave.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "arch/vision_order.h"
#include "models/golden.h"
#include "models/merge.h"
#include "models/tensor_io.h"
#include "models/weight_files.h"
#include "support/shared_data.h"
#include "weights/tensor_source.h"

namespace danlu::models {
namespace {

namespace fs = std::filesystem;

class VisionGolden : public testing::TestWithParam<const char*> {};

TEST_P(VisionGolden, EveryTensorOfTheFileIsGiven) {
  DANLU_REQUIRES_SHARED();
  const fs::path directory = test::shared_dir() / "golden" / GetParam();
  const auto model = load_model(directory, parallel::Mesh::single(), at::kFloat, at::kCPU);
  const auto golden = weights::open_safetensors(directory / "golden.safetensors");
  const GoldenReport report = compare_with_golden(*model, *golden, 1e-4);
  for (const TensorDifference& difference : report.differences)
    EXPECT_TRUE(difference.within) << difference.name << " differs by " << difference.judged;
  EXPECT_TRUE(report.passed);
  const auto is_compared = [&](const std::string& name) {
    return std::any_of(report.differences.begin(), report.differences.end(),
                       [&](const auto& difference) { return difference.name == name; });
  };
  for (const weights::TensorInfo& info : golden->tensors()) {
    const bool is_result = info.name.starts_with("grad.") || info.name.ends_with("vision_embeds") ||
                           info.name.ends_with("output_ids") || info.name == "logits" ||
                           info.name == "loss" || info.name == "position_ids" ||
                           info.name == "rope_deltas" || info.name.starts_with("hidden_states");
    if (is_result) {
      EXPECT_TRUE(is_compared(info.name)) << info.name;
    }
  }
  for (const Parameter& parameter : model->parameters())
    EXPECT_TRUE(is_compared("grad." + parameter.name())) << parameter.name();
}

INSTANTIATE_TEST_SUITE_P(Models, VisionGolden,
                         testing::Values("vl/qwen2_vl", "vl/qwen2_5_vl", "qwen2_vl"));

std::vector<int64_t> integers(const weights::TensorSource& source, const std::string& name) {
  const at::Tensor tensor = read_tensor(source, name).to(at::kLong).reshape({-1});
  return {tensor.data_ptr<int64_t>(), tensor.data_ptr<int64_t>() + tensor.numel()};
}

/// A merge is proved by probes: they notice what changes in the tower.
TEST(VisionMerge, ProbesOfAMergeSeeTheTower) {
  DANLU_REQUIRES_SHARED();
  const auto model = load_model(test::shared_dir() / "golden/vl/qwen2_5_vl",
                                parallel::Mesh::single(), at::kFloat, at::kCPU);
  const at::Tensor before = probe_logits(*model);
  for (Parameter parameter : model->parameters()) {
    if (parameter.name() != "visual.blocks.0.attn.proj.weight") continue;
    at::Tensor values = parameter.tensor.detach();
    values.mul_(2);
  }
  EXPECT_GT((probe_logits(*model) - before).abs().max().item<double>(), 1e-3);
}

TEST(VisionOrder, WindowsComeInTheOrderOfTheFile) {
  DANLU_REQUIRES_SHARED();
  const fs::path directory = test::shared_dir() / "golden/vl/qwen2_5_vl";
  const arch::ModelConfig config = arch::load_model_config(directory);
  const auto golden = weights::open_safetensors(directory / "golden.safetensors");
  std::vector<media::Grid> grids;
  const auto add = [&](const std::string& name) {
    const std::vector<int64_t> thw = integers(*golden, name + ".grid_thw");
    grids.push_back({thw[0], thw[1], thw[2]});
  };
  for (const int64_t file : integers(*golden, "image_file")) add("image" + std::to_string(file));
  add("video0");
  const arch::VisionOrder order = arch::vision_order(*config.vision, grids);
  EXPECT_EQ(order.order, integers(*golden, "window_index"));
  EXPECT_EQ(order.window_starts, integers(*golden, "cu_window_seqlens"));
}

/// transformers 4.52 and later write the same model with the decoder's keys in text_config.
TEST(VisionConfig, BothLayoutsOfConfigJsonAreOneModel) {
  DANLU_REQUIRES_SHARED();
  for (const std::string name : {"qwen2_vl", "qwen2_5_vl"}) {
    const fs::path directory = test::shared_dir() / "golden/vl" / name;
    arch::ModelConfig flat = arch::load_model_config(directory / "config.json"),
                      nested = arch::load_model_config(directory / "config_nested.json");
    EXPECT_EQ(flat.tie_embeddings, nested.tie_embeddings);
    EXPECT_EQ(flat.rope.mrope_section, nested.rope.mrope_section);
    EXPECT_EQ(flat.rope.theta, nested.rope.theta);
    EXPECT_EQ(flat.eos_ids, nested.eos_ids);
    EXPECT_EQ(flat.dtype, nested.dtype);
    const auto a = arch::parameters_of(flat), b = arch::parameters_of(nested);
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_EQ(a[i].name, b[i].name);
      EXPECT_EQ(a[i].shape, b[i].shape);
      EXPECT_EQ(a[i].tied_to, b[i].tied_to);
    }
  }
}

}  // namespace
}  // namespace danlu::models
