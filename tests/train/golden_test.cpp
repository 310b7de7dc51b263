// Twenty steps against Hugging Face and torch.optim.AdamW (shared/golden/train_*, lora_llama).
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include "models/weight_files.h"
#include "support/temporary_directory.h"
#include "train/golden_rows.h"
#include "train/support.h"

namespace danlu::train {
namespace golden_test {

using test::read_tensor;

void expect_curve(TrainState& state, const TrainConfig& config, const weights::TensorSource& golden,
                  const std::string& prefix, double loss_tolerance,
                  const std::function<void(int64_t, const StepResult&)>& more = {}) {
  const at::Tensor losses = read_tensor(golden, prefix + "losses"),
                   norms = read_tensor(golden, prefix + "grad_norms");
  for (int64_t step = 0; step < losses.numel(); ++step) {
    const StepResult result =
        run_step(state, test::step_of(test::golden_rows(golden, step, prefix), 3, 1, 0), config,
                 config.schedule.shape);
    EXPECT_NEAR(result.loss, losses[step].item<float>(), loss_tolerance) << "step " << step;
    EXPECT_NEAR(result.grad_norm, norms[step].item<float>(), 1e-3) << "step " << step;
    EXPECT_FALSE(result.skipped);
    if (more) more(step, result);
  }
}

class FullTraining : public testing::TestWithParam<const char*> {};

TEST_P(FullTraining, TwentyStepsEqualTorch) {
  DANLU_REQUIRES_SHARED();
  const auto golden_dir = danlu::test::shared_dir() / "golden";
  const auto golden = weights::open_safetensors(golden_dir / (std::string("train_") + GetParam()) /
                                                "golden.safetensors");
  const TrainConfig config = test::golden_recipe(1e-3);
  TrainState state =
      test::make_state(models::load_model(golden_dir / GetParam(), parallel::Mesh::single(),
                                          at::kFloat, at::Device(at::kCPU)),
                       config);
  expect_curve(state, config, *golden, "", 1e-4);
  const auto final_model = weights::open_safetensors(
      golden_dir / (std::string("train_") + GetParam()) / "final_model.safetensors");
  for (const auto& parameter : state.model->parameters()) {
    const double difference =
        (parameter.tensor.detach() - read_tensor(*final_model, parameter.name()))
            .abs()
            .max()
            .item<double>();
    EXPECT_LT(difference, 1e-3) << parameter.name();
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, FullTraining, testing::Values("llama", "qwen2"),
                         [](const auto& info) { return std::string(info.param); });

TEST(ExpertTraining, TwentyStepsWithHuggingFacesBalanceLossEqualTorch) {
  DANLU_REQUIRES_SHARED();
  const auto golden_dir = danlu::test::shared_dir() / "golden" / "moe";
  const auto golden = weights::open_safetensors(golden_dir / "train_qwen3_moe/golden.safetensors");
  TrainConfig config = test::golden_recipe(1e-3);
  constexpr double kFactor = 0.02;
  config.routers = {settings::BalanceLoss::kModel, kFactor};
  TrainState state =
      test::make_state(models::load_model(golden_dir / "qwen3_moe", parallel::Mesh::single(),
                                          at::kFloat, at::Device(at::kCPU)),
                       config);
  const at::Tensor terms = read_tensor(*golden, "aux_losses");
  expect_curve(state, config, *golden, "", 1e-4, [&](int64_t step, const StepResult& result) {
    EXPECT_NEAR(result.metrics.at("aux_loss") / kFactor, terms[step].item<float>(), 1e-4)
        << "step " << step;
  });
  const auto final_model =
      weights::open_safetensors(golden_dir / "train_qwen3_moe/final_model.safetensors");
  for (const auto& parameter : state.model->parameters()) {
    EXPECT_LT((parameter.tensor.detach() - read_tensor(*final_model, parameter.name()))
                  .abs()
                  .max()
                  .item<double>(),
              1e-3)
        << parameter.name();
  }
}

TEST(LoraTraining, TenStepsEqualPeft) {
  DANLU_REQUIRES_SHARED();
  const auto golden_dir = danlu::test::shared_dir() / "golden";
  const auto golden = weights::open_safetensors(golden_dir / "lora_llama" / "golden.safetensors");
  // PEFT's own layout: adapter_config.json beside the initial adapter under the name PEFT uses.
  const danlu::test::TemporaryDirectory start;
  std::filesystem::copy_file(golden_dir / "lora_llama" / "adapter_config.json",
                             start / "adapter_config.json");
  std::filesystem::copy_file(golden_dir / "lora_llama" / "adapter_init.safetensors",
                             start / "adapter_model.safetensors");
  const TrainConfig config = test::golden_recipe(2e-3);
  TrainState state =
      test::make_state(models::load_model(golden_dir / "llama", parallel::Mesh::single(),
                                          at::kFloat, at::Device(at::kCPU), start),
                       config);
  expect_curve(state, config, *golden, "train.", 2e-5);
  const auto final_adapter =
      weights::open_safetensors(golden_dir / "lora_llama" / "adapter_final.safetensors");
  int64_t compared = 0;
  for (const auto& parameter : state.model->adapter_parameters()) {
    EXPECT_LT((parameter.tensor.detach() - read_tensor(*final_adapter, parameter.name()))
                  .abs()
                  .max()
                  .item<double>(),
              1e-3)
        << parameter.name();
    ++compared;
  }
  EXPECT_EQ(compared, static_cast<int64_t>(final_adapter->tensors().size()));
}

}  // namespace golden_test
}  // namespace danlu::train
