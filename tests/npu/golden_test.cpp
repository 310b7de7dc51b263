// Published goldens on the simulated NPU, with the CPU's tolerances: logits, hidden states, losses
// and gradients of models, and twenty steps of training.
#include "models/golden.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "models/weight_files.h"
#include "npu/support.h"
#include "support/shared_data.h"
#include "train/support.h"

namespace danlu::npu::test {
namespace {

namespace training = danlu::train::test;
using models::GoldenReport;

void expect_close(const std::filesystem::path& directory, size_t at_least) {
  const auto model = models::load_model(directory, parallel::Mesh::single(), at::kFloat, npu());
  const auto golden = weights::open_safetensors(directory / "golden.safetensors");
  const GoldenReport report = models::compare_with_golden(*model, *golden, 1e-4);
  EXPECT_GE(report.differences.size(), at_least + model->parameters().size());
  for (const models::TensorDifference& d : report.differences) {
    const double limit = d.name == "loss" ? 1e-5 : d.name.rfind("grad.", 0) == 0 ? 1e-4 : 5e-5;
    EXPECT_LE(d.judged, limit) << d.name << " max abs " << d.max_abs;
  }
}

/// Also those whose head is their embedding, and the losses that balance experts.
TEST(NpuGoldens, ModelsAreHuggingFaces) {
  DANLU_REQUIRES_SHARED();
  for (const char* name :
       {"llama", "baichuan2_7b", "qwen2", "qwen3", "mixtral", "moe/qwen2_moe", "moe/deepseek_v2"}) {
    SCOPED_TRACE(name);
    expect_close(danlu::test::shared_dir() / "golden" / name, 2);
  }
}

TEST(NpuGoldens, WindowsAndAlibiAreTheDenseOnes) {
  for (const char* name : {"baichuan_alibi", "mistral_window"}) {
    SCOPED_TRACE(name);
    expect_close(std::filesystem::path(DANLU_SOURCE_DIR) / "tests/models/goldens" / name, 2);
  }
}

TEST(NpuGoldens, TwentyStepsEqualTorch) {
  DANLU_REQUIRES_SHARED();
  const auto golden_dir = danlu::test::shared_dir() / "golden";
  for (const std::string name : {"llama", "qwen2"}) {
    SCOPED_TRACE(name);
    const auto golden =
        weights::open_safetensors(golden_dir / ("train_" + name) / "golden.safetensors");
    const auto read = [&](const char* tensor) { return training::read_tensor(*golden, tensor); };
    const at::Tensor ids = read("input_ids"), mask = read("attention_mask"),
                     labels = read("labels"), losses = read("losses"), norms = read("grad_norms");
    const train::TrainConfig config = training::golden_recipe(1e-3);
    train::TrainState state = training::make_state(
        models::load_model(golden_dir / name, parallel::Mesh::single(), at::kFloat, npu()), config);
    for (int64_t step = 0; step < losses.numel(); ++step) {
      std::vector<data::Sample> samples(static_cast<size_t>(ids.size(1)));
      for (int64_t row = 0; row < ids.size(1); ++row) {
        for (int64_t t = 0; t < ids.size(2); ++t) {
          if (mask[step][row][t].item<int64_t>() == 0) continue;
          auto& sample = samples[static_cast<size_t>(row)];
          sample.ids.push_back(static_cast<int32_t>(ids[step][row][t].item<int64_t>()));
          sample.labels.push_back(static_cast<int32_t>(labels[step][row][t].item<int64_t>()));
        }
      }
      const auto source = std::make_shared<data::VectorSource>(std::move(samples));
      const train::StepResult result =
          train::run_step(state, training::step_of(source, 3, 1, 0), config, config.schedule.shape);
      EXPECT_NEAR(result.loss, losses[step].item<float>(), 1e-4) << "step " << step;
      EXPECT_NEAR(result.grad_norm, norms[step].item<float>(), 1e-3) << "step " << step;
    }
  }
}

}  // namespace
}  // namespace danlu::npu::test
