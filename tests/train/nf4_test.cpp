// QLoRA: adapters on base weights in NF4, against bitsandbytes and PEFT (shared/golden/rl/nf4),
// against LoRA on the dequantised weights, and on every mesh.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "models/adapters.h"
#include "models/batch.h"
#include "models/merge.h"
#include "models/weight_files.h"
#include "plan/memory.h"
#include "support/temporary_directory.h"
#include "train/mesh.h"
#include "train/report/metrics_log.h"
#include "train/run.h"
#include "train/support.h"
#include "weights/hf/nf4_tensors.h"
#include "weights/hf/save_model.h"

namespace danlu::train {
namespace nf4_test {

using mesh_test::Case;
using mesh_test::Outcome;
using mesh_test::Tuning;
using parallel::MeshShape;
using parallel::Sharding;
using test::read_tensor;

fs::path golden(const std::string& name) {
  return danlu::test::shared_dir() / "golden" / "rl" / "nf4" / name;
}

double distance(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

models::Quantisation kept() {
  models::Quantisation quantisation;
  quantisation.keeps_nf4 = true;
  return quantisation;
}

std::unique_ptr<models::CausalLM> load(const fs::path& path,
                                       const models::Quantisation& quantisation = {}) {
  return models::load_model(weights::open_checkpoint_source(path, {.all_tensors = true}),
                            parallel::Mesh::single(), at::kFloat, at::Device(at::kCPU), {}, {},
                            quantisation);
}

int64_t count_in_nf4(const models::CausalLM& model) {
  int64_t count = 0;
  for (const parallel::Parameter& parameter : model.parameters())
    count += parameter.quantized != nullptr;
  return count;
}

class QLoraGolden : public testing::TestWithParam<const char*> {};

TEST_P(QLoraGolden, LogitsLossAndGradientsEqualPeft) {
  DANLU_REQUIRES_SHARED();
  const auto expected = weights::open_safetensors(golden(GetParam()) / "golden.safetensors");
  // The folder holds both, and an adapter beside a model would be part of it.
  const danlu::test::TemporaryDirectory base, adapter;
  for (const char* file : {"config.json", "model.safetensors"})
    fs::copy_file(golden(GetParam()) / file, base / file);
  for (const char* file : {"adapter_config.json", "adapter_model.safetensors"})
    fs::copy_file(golden(GetParam()) / file, adapter / file);
  const auto model = load(base.path(), kept());
  EXPECT_EQ(count_in_nf4(*model), 14);
  const at::Tensor ids = read_tensor(*expected, "input_ids"),
                   mask = read_tensor(*expected, "attention_mask"),
                   labels = read_tensor(*expected, "labels");
  const models::PaddedBatch batch = models::pack_padded(ids, mask);
  const auto logits = [&] {
    const at::NoGradGuard no_grad;
    return model->logits(model->forward_hidden(batch.input));
  };
  const at::Tensor is_token = mask.to(at::kBool).view({-1});
  const auto golden_logits = [&](const std::string& name) {
    return read_tensor(*expected, name).view({-1, model->config().vocab_size}).index({is_token});
  };
  EXPECT_LT(distance(logits(), golden_logits("logits")), 5e-5);

  models::load_adapter(*model, adapter.path());
  EXPECT_LT(distance(logits(), golden_logits("qlora.logits")), 5e-5);
  const TrainConfig config = test::golden_recipe(1e-3);
  std::vector<data::Sample> samples;
  for (int64_t row = 0; row < ids.size(0); ++row) {
    data::Sample sample;
    for (int64_t t = 0; t < ids.size(1); ++t) {
      if (mask[row][t].item<int64_t>() == 0) continue;
      sample.ids.push_back(static_cast<int32_t>(ids[row][t].item<int64_t>()));
      sample.labels.push_back(static_cast<int32_t>(labels[row][t].item<int64_t>()));
    }
    samples.push_back(std::move(sample));
  }
  auto own = load(base.path(), kept());
  models::load_adapter(*own, adapter.path());
  TrainState state = test::make_state(std::move(own), config);
  const StepResult result =
      run_step(state, test::step_of(std::make_shared<data::VectorSource>(samples), 2, 1, 0), config,
               config.schedule.shape);
  EXPECT_NEAR(result.loss, read_tensor(*expected, "qlora.loss").item<double>(), 2e-5);
  std::map<std::string, at::Tensor> gradients;
  mesh_test::assemble_units(
      state.gradients->store(), [&](size_t u) { return state.gradients->share(u); }, gradients);
  ASSERT_EQ(gradients.size(), 12u);
  for (const auto& [name, gradient] : gradients) {
    const at::Tensor should = read_tensor(*expected, "qlora.grad." + name);
    EXPECT_LT(distance(gradient, should), 2e-5 + 1e-4 * should.abs().max().item<double>()) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, QLoraGolden,
                         testing::Values("ckpt_bf16_double", "ckpt_f32_plain"),
                         [](const auto& info) { return std::string(info.param); });

// --- meshes --------------------------------------------------------------------------------------

Case of(const char* name, const char* family, Tuning tuning, const MeshShape& shape,
        Sharding sharding = Sharding::kNone) {
  Case c{name, family, {{"initializer_range", 0.1}}, tuning, shape, sharding};
  c.nf4 = true;
  if (shape.pipeline > 1) c.layers = 4;
  return c;
}

std::vector<Case> qlora_cases() {
  const MeshShape dp2{.data = 2}, tp2{.tensor = 2}, tp2_sp{.tensor = 2, .sequence_parallel = true},
      pp2{.pipeline = 2}, cp2{.context = {2, 1, 1}}, tp2pp2{.tensor = 2, .pipeline = 2},
      dp2tp2{.tensor = 2, .data = 2}, tp4{.tensor = 4};
  return {of("qwen2", "qwen2", Tuning::kLora, dp2),
          of("qwen2", "qwen2", Tuning::kLora, dp2, Sharding::kGradients),
          of("qwen2", "qwen2", Tuning::kLora, dp2, Sharding::kParameters),
          of("qwen2", "qwen2", Tuning::kDora, dp2tp2, Sharding::kParameters),
          of("qwen2", "qwen2", Tuning::kLora, tp2),
          of("qwen2", "qwen2", Tuning::kLora, tp2_sp),
          of("qwen2", "qwen2", Tuning::kDora, tp4),
          of("qwen2", "qwen2", Tuning::kLora, pp2),
          of("qwen2", "qwen2", Tuning::kLora, cp2),
          of("qwen2", "qwen2", Tuning::kLora, tp2pp2),
          of("qwen2", "qwen2", Tuning::kLora, dp2tp2),
          of("phi3", "phi3", Tuning::kLora, tp2),
          of("qwen3_moe", "qwen3_moe", Tuning::kLora, {.data = 2, .expert = 2}),
          of("qwen3_moe", "qwen3_moe", Tuning::kLora, tp2)};
}

class QLoraMesh : public testing::TestWithParam<Case> {};

TEST_P(QLoraMesh, GivesTheNumbersOfOneRank) {
  const Case alone = mesh_test::without_schemes(GetParam());
  mesh_test::expect_numbers_of(mesh_test::train(alone, {}, 10),
                               mesh_test::train(GetParam(), GetParam().shape, 10));
}

INSTANTIATE_TEST_SUITE_P(Meshes, QLoraMesh, testing::ValuesIn(qlora_cases()), mesh_test::name_of);

// --- runs ----------------------------------------------------------------------------------------

class QLoraRun : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    test::write_run_inputs(folder_, DType::kF32, 60);
    const auto base = weights::open_checkpoint_source(folder_ / "model", {.all_tensors = true});
    const auto dense = weights::with_nf4(
        weights::as_nf4(base.model, weights::names_in_nf4(base.config), {64, true, DType::kF32}));
    fs::create_directory(folder_ / "dequantised");
    weights::save_model(*dense, base.config, DType::kF32, folder_ / "dequantised");
    weights::carry_over_files(folder_ / "model", folder_ / "dequantised");
  }
  TrainConfig config(const std::string& model, const std::string& run) const {
    TrainConfig config;
    config.tuner = Tuner::kLora;
    config.precision = Precision::kF32;
    config.device = "cpu";
    config.lora.rank = 4;
    config.lora.alpha = 8;
    config.lora.dora = GetParam();
    config.model.path = config.model.tokenizer = folder_ / model;
    config.data.train = {(folder_ / "data.jsonl").string()};
    config.data.cache_dir = folder_ / "cache";
    config.data.max_length = 64;
    config.batch.micro_batch_size = 4;
    config.batch.accumulation = 2;
    config.batch.max_steps = 20;
    config.schedule.shape.kind = settings::ScheduleKind::kCosine;
    config.schedule.shape.lr = 2e-2;
    config.output.directory = folder_ / run;
    config.output.save_steps = 10;
    config.output.logging_steps = 1;
    config.output.plot_loss = false;
    return config;
  }
  std::vector<std::pair<int64_t, double>> losses(const std::string& run) const {
    return read_metrics(folder_ / run / "logging.jsonl")["loss"];
  }
  const danlu::test::TemporaryDirectory folder_;
};

TEST_P(QLoraRun, IsLoraOnTheDequantisedModelAndResumes) {
  TrainConfig quantised = config("model", "run");
  quantised.nf4 = settings::Nf4Base{};
  run(quantised);
  run(config("dequantised", "dense"));
  const auto whole = losses("run"), dense = losses("dense");
  ASSERT_EQ(whole.size(), dense.size());
  EXPECT_LT(whole.back().second, whole.front().second - 0.3);
  for (size_t i = 0; i < whole.size(); ++i)
    EXPECT_NEAR(whole[i].second, dense[i].second, 1e-5) << i;

  const std::string adapter = read_file(folder_ / "run" / "adapter_model.safetensors");
  fs::remove_all(folder_ / "run" / "checkpoint-20");
  fs::remove(folder_ / "run" / "adapter_model.safetensors");
  run(quantised);
  EXPECT_EQ(losses("run"), whole);
  EXPECT_EQ(read_file(folder_ / "run" / "adapter_model.safetensors"), adapter);
}

INSTANTIATE_TEST_SUITE_P(Kinds, QLoraRun, testing::Values(false, true), [](const auto& info) {
  return std::string(info.param ? "Dora" : "Lora");
});

/// The plan's bytes of weights against the memory of a model that is trained so.
TEST(QLoraPlan, WeightsTakeWhatTheModelHolds) {
  Json json = danlu::test::tiny_config("llama");
  json.update({{"hidden_size", 128}, {"intermediate_size", 256}, {"num_attention_heads", 4}});
  const arch::ModelConfig model_config = arch::parse_model_config(json, "test");
  for (const bool doubly : {false, true}) {
    models::CausalLM model(model_config, parallel::Mesh::single(), at::kBFloat16,
                           at::Device(at::kCPU));
    model.freeze({"."});
    models::Quantisation quantisation;
    quantisation.make_nf4 = models::Quantisation::Nf4{doubly};
    models::hold_in_nf4(model, quantisation);
    models::initialize(model, 3);
    plan::Request request;
    request.model = model_config;
    request.tokens = 64;
    request.adapters = settings::new_adapters();
    const auto weights_of = [&](double bits) {
      request.nf4_bits = bits;
      return plan::memory_by_stage(request)[0].memory.weights;
    };
    const int64_t saved = weights_of(0) - weights_of(settings::Nf4Base{doubly, false}.bits());
    int64_t dense = 0;
    for (const parallel::Parameter& parameter : model.parameters())
      dense += parameter.tensor.numel() * 2;
    const int64_t really = dense - models::held_bytes(model).all;
    EXPECT_NEAR(static_cast<double>(saved) / static_cast<double>(really), 1.0, 0.01) << doubly;
  }
}

}  // namespace nf4_test
}  // namespace danlu::train
