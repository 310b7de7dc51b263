// Every dense text family against Hugging Face's own numbers.
#include "models/golden.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <set>

#include "base/error.h"
#include "models/batch.h"
#include "models/merge.h"
#include "models/tensor_io.h"
#include "models/weight_files.h"
#include "support/shared_data.h"
#include "support/temporary_directory.h"
#include "weights/lora/lora_source.h"

namespace danlu::models {
namespace {

std::filesystem::path golden_dir(const std::string& name) {
  return test::shared_dir() / "golden" / name;
}

/// Limits of the goldens' README: logits, hidden states and loss absolutely, gradients relative to
/// the tensor's largest element.
void expect_close(const GoldenReport& report) {
  for (const TensorDifference& d : report.differences) {
    const double limit = d.name == "loss" ? 1e-5 : d.name.rfind("grad.", 0) == 0 ? 1e-4 : 5e-5;
    EXPECT_LE(d.judged, limit) << d.name << " max abs " << d.max_abs;
    if (d.name.rfind("grad.", 0) == 0) {
      EXPECT_LE(d.max_abs, 2e-5) << d.name;
    }
  }
}

class Golden : public testing::TestWithParam<const char*> {};

/// The folder, with config.json as transformers 5 writes it.
std::filesystem::path with_new_config(const std::filesystem::path& golden,
                                      const std::filesystem::path& directory) {
  std::filesystem::copy_file(golden / "config_v5.json", directory / "config.json");
  for (const char* name : {"model.safetensors", "golden.safetensors"})
    std::filesystem::create_symlink(std::filesystem::absolute(golden / name), directory / name);
  return directory;
}

void expect_golden(const std::filesystem::path& directory) {
  const auto model = load_model(directory, parallel::Mesh::single(), at::kFloat, at::kCPU);
  const auto golden = weights::open_safetensors(directory / "golden.safetensors");
  const GoldenReport report = compare_with_golden(*model, *golden, 1e-4);
  expect_close(report);
  // logits, loss, long logits, greedy ids, hidden states around every layer, a gradient of every
  // parameter.
  EXPECT_EQ(report.differences.size(), 5 + model->config().num_layers + model->parameters().size());
  EXPECT_THAT(report.not_compared, testing::IsEmpty());
  EXPECT_EQ(report.first_deviation, "");
}

TEST_P(Golden, LogitsLossGradientsHiddenStatesAndGreedyTokensEqualHuggingFace) {
  DANLU_REQUIRES_SHARED();
  expect_golden(golden_dir(GetParam()));
}

class FurtherGolden : public testing::TestWithParam<const char*> {};

TEST_P(FurtherGolden, BothSpellingsOfTheConfigGiveHuggingFacesNumbers) {
  DANLU_REQUIRES_SHARED();
  const std::filesystem::path golden = golden_dir("moe") / GetParam();
  expect_golden(golden);
  if (!std::filesystem::exists(golden / "config_v5.json")) return;
  const test::TemporaryDirectory directory;
  expect_golden(with_new_config(golden, directory.path()));
}

INSTANTIATE_TEST_SUITE_P(Families, FurtherGolden,
                         testing::Values("phi3", "phi3_longrope", "gemma", "gemma2", "gemma3_text",
                                         "glm", "glm4", "chatglm3", "minicpm", "internlm2",
                                         "internlm3", "llama3_2"),
                         [](const auto& info) { return std::string(info.param); });

INSTANTIATE_TEST_SUITE_P(Families, Golden,
                         testing::Values("llama", "llama_sharded_bf16", "qwen2", "qwen3",
                                         "baichuan2_7b"),
                         [](const auto& info) { return std::string(info.param); });

TEST(GoldenOthers, WhatWasFrozenStaysFrozen) {
  DANLU_REQUIRES_SHARED();
  const auto model =
      load_model(golden_dir("llama"), parallel::Mesh::single(), at::kFloat, at::kCPU);
  model->freeze({"embed_tokens", "mlp"});
  const auto golden = weights::open_safetensors(golden_dir("llama") / "golden.safetensors");
  EXPECT_TRUE(compare_with_golden(*model, *golden, 1e-4).passed);
  for (const Parameter& parameter : model->parameters())
    EXPECT_EQ(parameter.tensor.requires_grad(), parameter.trainable) << parameter.name();
}

class ExpertGolden : public testing::TestWithParam<const char*> {};

TEST_P(ExpertGolden, RoutersLossesGradientsAndGreedyTokensEqualHuggingFace) {
  DANLU_REQUIRES_SHARED();
  const auto model =
      load_model(golden_dir(GetParam()), parallel::Mesh::single(), at::kFloat, at::kCPU);
  const auto golden = weights::open_safetensors(golden_dir(GetParam()) / "golden.safetensors");
  const GoldenReport report = compare_with_golden(*model, *golden, 1e-4);
  expect_close(report);
  EXPECT_THAT(report.not_compared, testing::IsEmpty());
  EXPECT_EQ(report.first_deviation, "");
  std::set<std::string> compared;
  for (const TensorDifference& difference : report.differences) compared.insert(difference.name);
  for (const char* name : {"logits", "loss", "long_logits", "gen_output_ids", "router_logits.1"})
    EXPECT_EQ(compared.count(name), 1u) << name;
  for (const Parameter& parameter : model->parameters()) {
    if (parameter.trainable) {
      EXPECT_EQ(compared.count("grad." + parameter.name()), 1u) << parameter.name();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, ExpertGolden,
                         testing::Values("mixtral", "moe/qwen2_moe", "moe/qwen3_moe",
                                         "moe/glm4_moe", "moe/phimoe", "moe/llama4_text"),
                         [](const auto& info) {
                           const std::string name = info.param;
                           return name.substr(name.rfind('/') + 1);
                         });

/// AdamW as torch.optim.AdamW, on every tensor given: the curves below were made with it.
struct PlainAdamW {
  double lr, beta1, beta2, eps, weight_decay;
  std::vector<at::Tensor> parameters, first = {}, second = {};
  int64_t step_count = 0;

  void step(const std::vector<at::Tensor>& grads) {
    const at::NoGradGuard no_grad;
    if (first.empty()) {
      for (const at::Tensor& p : parameters) {
        first.push_back(at::zeros_like(p));
        second.push_back(at::zeros_like(p));
      }
    }
    ++step_count;
    const double c1 = 1 - std::pow(beta1, step_count), c2 = 1 - std::pow(beta2, step_count);
    for (size_t i = 0; i < parameters.size(); ++i) {
      at::Tensor p = parameters[i];
      p.mul_(1 - lr * weight_decay);
      first[i].mul_(beta1).add_(grads[i], 1 - beta1);
      second[i].mul_(beta2).addcmul_(grads[i], grads[i], 1 - beta2);
      p.addcdiv_(first[i], (second[i] / c2).sqrt_().add_(eps), -lr / c1);
    }
  }
};

struct Curve {
  std::vector<double> losses, norms;
};

Curve train(CausalLM& model, const weights::TensorSource& golden, const std::string& prefix,
            double lr) {
  PlainAdamW optimizer{lr, 0.9, 0.95, 1e-8, 0.1, {}};
  for (const Parameter& p : model.trainable_parameters()) optimizer.parameters.push_back(p.tensor);
  const at::Tensor ids = read_tensor(golden, prefix + "input_ids"),
                   mask = read_tensor(golden, prefix + "attention_mask"),
                   labels = read_tensor(golden, prefix + "labels");
  Curve curve;
  for (int64_t step = 0; step < ids.size(0); ++step) {
    const PaddedBatch batch = pack_padded(ids[step], mask[step], labels[step]);
    const LossSum loss = model.loss(batch.input, batch.targets_N);
    const at::Tensor mean = loss.sum / static_cast<double>(loss.num_targets);
    auto grads = torch::autograd::grad({mean}, optimizer.parameters);
    double square = 0;
    for (const at::Tensor& g : grads) square += g.to(at::kDouble).square().sum().item<double>();
    const double norm = std::sqrt(square);
    for (at::Tensor& g : grads) g = g * std::min(1.0, 1.0 / (norm + 1e-6));
    curve.losses.push_back(mean.item<double>());
    curve.norms.push_back(norm);
    optimizer.step(grads);
  }
  return curve;
}

void expect_curve(const Curve& curve, const weights::TensorSource& golden,
                  const std::string& prefix, double loss_limit) {
  const at::Tensor losses = read_tensor(golden, prefix + "losses"),
                   norms = read_tensor(golden, prefix + "grad_norms");
  ASSERT_EQ(static_cast<int64_t>(curve.losses.size()), losses.numel());
  for (size_t i = 0; i < curve.losses.size(); ++i) {
    EXPECT_NEAR(curve.losses[i], losses[static_cast<int64_t>(i)].item<double>(), loss_limit)
        << "step " << i;
    EXPECT_NEAR(curve.norms[i], norms[static_cast<int64_t>(i)].item<double>(), 1e-3)
        << "step " << i;
  }
}

class TrainingCurve : public testing::TestWithParam<const char*> {};

TEST_P(TrainingCurve, LossesNormsAndFinalWeightsEqualTorch) {
  DANLU_REQUIRES_SHARED();
  const auto golden = weights::open_safetensors(golden_dir("train_" + std::string(GetParam())) /
                                                "golden.safetensors");
  const auto final_model = weights::open_safetensors(
      golden_dir("train_" + std::string(GetParam())) / "final_model.safetensors");
  const auto model =
      load_model(golden_dir(GetParam()), parallel::Mesh::single(), at::kFloat, at::kCPU);
  expect_curve(train(*model, *golden, "", 1e-3), *golden, "", 1e-4);
  for (const Parameter& p : model->parameters()) {
    const double difference =
        (p.tensor.detach() - read_tensor(*final_model, p.name())).abs().max().item<double>();
    EXPECT_LE(difference, 1e-3) << p.name();
  }
}
INSTANTIATE_TEST_SUITE_P(Models, TrainingCurve, testing::Values("llama", "qwen2"),
                         [](const auto& info) { return std::string(info.param); });

TEST(LoraGolden, ForwardGradientsAndMergedLogitsEqualPeft) {
  DANLU_REQUIRES_SHARED();
  const auto model = load_model(golden_dir("llama"), parallel::Mesh::single(), at::kFloat, at::kCPU,
                                golden_dir("lora_llama"));
  const auto golden = weights::open_safetensors(golden_dir("lora_llama") / "golden.safetensors");
  const weights::MergedModel files = weights::merge_adapters(
      weights::open_weights(golden_dir("llama")), weights::open_weights(golden_dir("lora_llama")),
      weights::load_peft_config(golden_dir("lora_llama")), model->config());
  std::unique_ptr<CausalLM> ours;
  const auto merge = [&]() -> CausalLM& {
    ours = load_merged(files, parallel::Mesh::single(), at::kFloat, at::kCPU);
    return *ours;
  };
  const GoldenReport report = compare_with_golden(*model, *golden, 1e-4, merge);
  expect_close(report);
  // logits, loss, merged logits; A and B of 7 projections in 3 layers.
  EXPECT_EQ(report.differences.size(), 3u + 2 * 7 * 3);
  const auto merged =
      weights::open_safetensors(golden_dir("lora_llama") / "merged_model.safetensors");
  ASSERT_TRUE(ours);
  for (const Parameter& p : ours->parameters()) {
    EXPECT_LE((p.tensor.detach() - read_tensor(*merged, p.name())).abs().max().item<double>(), 1e-6)
        << p.name();
  }
  // Nobody merges: the file's merged logits mean nothing then.
  EXPECT_THAT(compare_with_golden(*model, *golden, 1e-4).not_compared,
              testing::Contains("logits_merged"));
}

TEST(LoraGolden, TenStepsEqualPeft) {
  DANLU_REQUIRES_SHARED();
  const auto model = load_model(golden_dir("llama"), parallel::Mesh::single(), at::kFloat, at::kCPU,
                                golden_dir("lora_llama"));
  const auto start =
      weights::open_safetensors(golden_dir("lora_llama") / "adapter_init.safetensors");
  const auto end =
      weights::open_safetensors(golden_dir("lora_llama") / "adapter_final.safetensors");
  for (const Parameter& p : model->adapter_parameters()) read_into(*start, p.name(), p);
  const auto golden = weights::open_safetensors(golden_dir("lora_llama") / "golden.safetensors");
  expect_curve(train(*model, *golden, "train.", 2e-3), *golden, "train.", 2e-5);
  for (const Parameter& p : model->adapter_parameters()) {
    EXPECT_LE((p.tensor.detach() - read_tensor(*end, p.name())).abs().max().item<double>(), 1e-3)
        << p.name();
  }
}

}  // namespace
}  // namespace danlu::models
