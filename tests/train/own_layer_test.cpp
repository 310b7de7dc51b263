// A kind of layer that a program brings along (gated_residual.h) goes everywhere the decoder's own
// goes, with no line about it anywhere else.
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "models/causal_lm.h"
#include "models/training_memory.h"
#include "models/weight_files.h"
#include "train/batch_input.h"
#include "train/evaluate.h"
#include "train/gated_residual.h"
#include "train/mesh.h"
#include "train/report/metrics_log.h"
#include "train/run.h"

namespace danlu::train {
namespace mesh_test {
namespace {

Case gated() {
  add_gated_residual();
  Case c{"gated", "gated_residual", Json::object()};
  c.layers = 4;
  return c;
}

/// Compares a mesh with one rank: losses, norms, the first gradients, and the layers' figure.
void expect_as_alone(const Case& c) {
  SCOPED_TRACE(name_of({c, 0}));
  constexpr int64_t kSteps = 3;
  const Outcome one = train(without_schemes(c), {}, kSteps), got = train(c, c.shape, kSteps);
  expect_numbers_of(one, got);
  const bool has_gate = std::any_of(
      one.gradients.begin(), one.gradients.end(),
      [](const auto& item) { return item.first.find("gate.weight") != std::string::npos; });
  EXPECT_TRUE(has_gate || c.tuning != Tuning::kFull);
  for (size_t step = 0; step < kSteps; ++step) {
    EXPECT_GT(one.metrics[step].at(kGateTerm), 0.05);
    EXPECT_NEAR(got.metrics[step].at(kGateTerm), one.metrics[step].at(kGateTerm),
                1e-5 * one.metrics[step].at(kGateTerm));
  }
}

TEST(OwnLayerMesh, TrainsOnEveryAxisAsOnOneRank) {
  using parallel::Sharding;
  const auto on = [](MeshShape shape, Sharding sharding = Sharding::kNone) {
    Case c = gated();
    c.shape = shape;
    c.sharding = sharding;
    return c;
  };
  expect_as_alone(on({.data = 2}));
  expect_as_alone(on({.tensor = 2}));
  expect_as_alone(on({.tensor = 2, .sequence_parallel = true}));
  expect_as_alone(on({.pipeline = 2}));
  expect_as_alone(on({.context = {.ring = 2, .window = 2}}));
  expect_as_alone(on({.data = 2}, Sharding::kParameters));
  expect_as_alone(on({.tensor = 2, .data = 2, .pipeline = 2}, Sharding::kState));
}

TEST(OwnLayerMesh, IsRecomputedAndTakesAdapters) {
  for (const Tuning tuning : {Tuning::kFull, Tuning::kLora}) {
    for (const models::Recompute recompute :
         {models::Recompute::kSelective, models::Recompute::kFull}) {
      Case c = gated();
      c.tuning = tuning;
      c.recompute = recompute;
      expect_as_alone(c);
      c.shape = {.data = 2};
      c.sharding = parallel::Sharding::kParameters;
      expect_as_alone(c);
    }
  }
}

/// The loss that the gradient is of: that of tokens, and the term of the layers.
double whole_loss(const models::CausalLM& model, const data::Batch& batch) {
  const at::NoGradGuard no_grad;
  models::PassResults results;
  models::ForwardInput input = evaluation_input(model, batch);
  input.results = &results;
  const at::Tensor targets = at::tensor(batch.targets, at::kLong);
  return model.loss(input, targets).sum.item<double>() +
         results.sums().at(kGateTerm).item<double>();
}

TEST(OwnLayer, TheTermOfTheLossHasItsGradient) {
  add_gated_residual();
  Json json = danlu::test::tiny_config("gated_residual");
  const arch::ModelConfig config = arch::family_of(json).parse(json);
  models::CausalLM model(config, parallel::Mesh::single(), at::kDouble, at::kCPU);
  models::initialize(model, 3);
  randomise(model, at::kDouble);
  const data::Batch batch = data::make_batch(test::toy_samples(3));
  // The factor that a step puts on its loss, which the layers' term gets too.
  constexpr double kScale = 3;
  models::ForwardInput input = evaluation_input(model, batch);
  input.loss_scale = kScale;
  const models::LossSum loss = model.loss(input, at::tensor(batch.targets, at::kLong), kScale);
  torch::autograd::backward({loss.sum}, {loss.factor});
  int64_t checked = 0;
  for (const parallel::Parameter& parameter : model.parameters()) {
    if (parameter.name().find("layers.1.gate") == std::string::npos &&
        parameter.name().find("layers.0.input_layernorm") == std::string::npos)
      continue;
    const at::NoGradGuard no_grad;
    constexpr double kStep = 1e-5;
    for (const int64_t i : {0, 7, 31}) {
      at::Tensor element = parameter.tensor.view({-1})[i];
      const auto at_distance = [&](double distance) {
        element.add_(distance);
        const double result = whole_loss(model, batch);
        element.sub_(distance);
        return result;
      };
      const double slope = (at_distance(kStep) - at_distance(-kStep)) / (2 * kStep);
      EXPECT_NEAR(parameter.tensor.grad().view({-1})[i].item<double>() / kScale, slope,
                  1e-5 * std::max(1.0, std::fabs(slope)))
          << parameter.name() << " " << i;
      ++checked;
    }
  }
  EXPECT_EQ(checked, 6);
}

TEST(OwnLayer, AStepDividesTheTermAsItDividesTheLossOfTokens) {
  const Case c = gated();
  const Outcome step = train(c, {}, 1);
  // The same by hand: every sample alone, divided by the targets of all.
  const TrainState reference = state_of(c, Mesh::single());
  models::CausalLM model(reference.model->config(), Mesh::single(), at::kFloat, at::kCPU);
  models::initialize(model, 3);
  randomise(model, at::kFloat);
  const data::StepBatches batches = batches_of(Mesh::single(), 0);
  const double scale = 1.0 / static_cast<double>(batches.num_targets);
  for (const data::Batch& batch : batches.micro_batches) {
    models::ForwardInput input = evaluation_input(model, batch);
    input.loss_scale = scale;
    const models::LossSum loss = model.loss(input, at::tensor(batch.targets, at::kLong), scale);
    torch::autograd::backward({loss.sum}, {loss.factor});
  }
  for (const parallel::Parameter& parameter : model.parameters()) {
    const at::Tensor &expected = parameter.tensor.grad(),
                     &found = step.gradients.at(parameter.name());
    const at::NoGradGuard no_grad;
    EXPECT_LE((found - expected).abs().max().item<double>(),
              1e-4 * expected.abs().max().item<double>())
        << parameter.name();
  }
}

TEST(OwnLayer, IsFrozenSavedLoadedAndEvaluated) {
  Case c = gated();
  TrainState state = state_of(c, parallel::Mesh::single(),
                              [](models::CausalLM& model) { model.freeze({"layers\\.1\\."}); });
  const data::StepBatches batches = batches_of(parallel::Mesh::single(), 0);
  const TrainConfig config = config_of(c);
  run_step(state, batches, config, config.schedule.shape);
  for (const parallel::Parameter& parameter : state.model->parameters())
    EXPECT_EQ(parameter.trainable, parameter.name().find("layers.1.") == std::string::npos);
  const danlu::test::TemporaryDirectory directory;
  state.model->memory().settle();
  models::save(*state.model, directory.path(), DType::kF32, {});
  const auto read =
      models::load_model(directory.path(), parallel::Mesh::single(), at::kFloat, at::kCPU);
  const auto samples = std::make_shared<data::VectorSource>(test::toy_samples(8));
  const auto figures = [&](const models::CausalLM& model) {
    return evaluate(model, *language_modelling(), samples, {.batch_size = 2});
  };
  const Evaluation before = figures(*state.model), after = figures(*read);
  EXPECT_EQ(before.loss, after.loss);
  EXPECT_EQ(before.metrics, after.metrics);
  EXPECT_GT(after.metrics.at(kGateTerm), 0.05);
}

TEST(OwnLayer, ARunGoesOnFromItsCheckpointBitForBit) {
  add_gated_residual();
  const danlu::test::TemporaryDirectory folder;
  test::write_run_inputs(folder.path(), DType::kF32, 32);
  danlu::test::write_tiny_model(folder / "own", danlu::test::tiny_config("gated_residual"));
  TrainConfig config;
  config.tuner = Tuner::kFull;
  config.precision = Precision::kF32;
  config.device = "cpu";
  config.model.path = folder / "own";
  config.model.tokenizer = folder / "own";
  config.data.train = {(folder / "data.jsonl").string()};
  config.data.cache_dir = folder / "cache";
  config.data.max_length = 64;
  config.batch.micro_batch_size = 2;
  config.batch.max_steps = 4;
  config.recompute.granularity = "full";
  config.schedule.shape.kind = settings::ScheduleKind::kCosine;
  config.schedule.shape.lr = 1e-3;
  config.output.save_steps = 2;
  config.output.logging_steps = 1;
  config.output.plot_loss = false;
  config.output.directory = folder / "whole";
  run(config);
  config.output.directory = folder / "parted";
  config.output.resume = (folder / "whole" / "checkpoint-2").string();
  run(config);
  EXPECT_EQ(read_file(folder / "whole" / "model.safetensors"),
            read_file(folder / "parted" / "model.safetensors"));
  const auto figures = read_metrics(folder / "whole" / "logging.jsonl").at(kGateTerm);
  ASSERT_EQ(figures.size(), 4u);
  EXPECT_GT(figures.back().second, 0.05);
}

}  // namespace
}  // namespace mesh_test
}  // namespace danlu::train
