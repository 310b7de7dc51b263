// What a step promises: the numbers do not depend on how it is cut, and never on luck.
#include "train/step.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <tuple>

#include "base/error.h"
#include "models/adapters.h"
#include "models/tensor_io.h"
#include "models/training_memory.h"
#include "models/weight_files.h"
#include "support/throws.h"
#include "train/evaluate.h"
#include "train/support.h"

namespace danlu::train {
namespace step_test {

TrainConfig quick(double lr = 1e-2) {
  TrainConfig config;
  config.schedule.shape.kind = settings::ScheduleKind::kConstant;
  config.schedule.shape.lr = lr;
  config.adamw.groups.weight_decay = 0.1;
  return config;
}

std::shared_ptr<data::VectorSource> toys(int64_t count) {
  return std::make_shared<data::VectorSource>(test::toy_samples(count));
}

/// Losses of `steps` steps over the toy samples, cut as asked.
std::vector<double> losses_of(TrainState& state, const TrainConfig& config, int64_t steps,
                              int64_t micro, int64_t accumulation, int64_t max_tokens) {
  const auto source = toys(64);
  std::vector<double> losses;
  for (int64_t step = 0; step < steps; ++step) {
    const auto batches =
        test::step_of(source, micro, accumulation, max_tokens, step * micro * accumulation);
    losses.push_back(run_step(state, batches, config, config.schedule.shape).loss);
  }
  return losses;
}

void expect_same_parameters(const TrainState& a, const TrainState& b, double tolerance) {
  const auto left = a.model->parameters(), right = b.model->parameters();
  for (size_t i = 0; i < left.size(); ++i) {
    EXPECT_LE((left[i].tensor - right[i].tensor).abs().max().item<double>(), tolerance)
        << left[i].name();
  }
}

TEST(Step, DropoutIsTheSameForEveryCutOfTheGlobalBatch) {
  TrainConfig config = quick();
  config.tuner = Tuner::kLora;
  config.lora.dropout = 0.1;
  const auto state_with_lora = [&](double dropout) {
    auto model = std::make_unique<models::CausalLM>(test::tiny_config(), parallel::Mesh::single(),
                                                    at::kFloat, at::Device(at::kCPU));
    models::initialize(*model, 7);
    weights::PeftConfig lora = config.lora;
    lora.dropout = dropout;
    models::add_lora(*model, lora, 5);
    const at::NoGradGuard no_grad;
    // With B = 0 no mask would be seen.
    for (const parallel::Parameter& p : model->adapter_parameters())
      at::Tensor(p.tensor).add_(models::normal_values(p.tensor.sizes().vec(), 0.1, 3));
    return test::make_state(std::move(model), config);
  };
  TrainState whole = state_with_lora(0.1), without = state_with_lora(0);
  const auto expected = losses_of(whole, config, 4, 16, 1, 0);
  EXPECT_GT(std::abs(losses_of(without, config, 4, 16, 1, 0)[0] - expected[0]), 1e-4);
  const std::tuple<int64_t, int64_t, int64_t> cuts[] = {{8, 2, 0},  {4, 4, 0},   {2, 8, 0},
                                                        {1, 16, 0}, {16, 1, 64}, {4, 4, 100}};
  for (const auto& [micro, accumulation, max_tokens] : cuts) {
    TrainState state = state_with_lora(0.1);
    const auto losses = losses_of(state, config, 4, micro, accumulation, max_tokens);
    for (size_t i = 0; i < losses.size(); ++i)
      EXPECT_NEAR(losses[i], expected[i], 1e-6 * expected[i]) << micro << " x " << accumulation;
  }
}

TEST(Step, AnyAccumulationSplitGivesTheSameUpdate) {
  const TrainConfig config = quick();
  TrainState whole = test::tiny_state(config), quarters = test::tiny_state(config),
             singles = test::tiny_state(config);
  const auto reference = losses_of(whole, config, 4, 16, 1, 0);
  const auto by_four = losses_of(quarters, config, 4, 4, 4, 0),
             by_one = losses_of(singles, config, 4, 1, 16, 0);
  for (size_t i = 0; i < reference.size(); ++i) {
    EXPECT_NEAR(by_four[i], reference[i], 2e-5) << i;
    EXPECT_NEAR(by_one[i], reference[i], 2e-5) << i;
  }
  // Micro-batches have 4 to 28 targets: a mean of means would differ in the second digit.
  expect_same_parameters(whole, quarters, 2e-4);
  expect_same_parameters(whole, singles, 2e-4);
}

TEST(Step, PackedLossEqualsUnpackedLoss) {
  const TrainConfig config = quick();
  TrainState packed = test::tiny_state(config), single = test::tiny_state(config);
  const auto in_packs = losses_of(packed, config, 4, 1, 16, 128),
             alone = losses_of(single, config, 4, 1, 16, 0);
  for (size_t i = 0; i < alone.size(); ++i) EXPECT_NEAR(in_packs[i], alone[i], 2e-5) << i;
  expect_same_parameters(packed, single, 2e-4);
}

TEST(Step, SameSeedSameBits) {
  const TrainConfig config = quick();
  TrainState a = test::tiny_state(config), b = test::tiny_state(config);
  EXPECT_EQ(losses_of(a, config, 6, 4, 2, 64), losses_of(b, config, 6, 4, 2, 64));
  expect_same_parameters(a, b, 0.0);
}

TEST(Step, DropoutFollowsFromSeedAndStep) {
  TrainConfig config = quick();
  const auto with_dropout = [&](uint64_t seed) {
    config.seed = seed;
    auto model = std::make_unique<models::CausalLM>(test::tiny_config(), parallel::Mesh::single(),
                                                    at::kFloat, at::Device(at::kCPU));
    models::initialize(*model, 7);
    weights::PeftConfig lora = settings::new_adapters();
    lora.dropout = 0.3;
    models::add_lora(*model, lora, 5);
    TrainState state = test::make_state(std::move(model), config);
    return losses_of(state, config, 5, 4, 1, 0);
  };
  const auto first = with_dropout(1);
  EXPECT_EQ(first, with_dropout(1));
  EXPECT_NE(first, with_dropout(2));
}

TEST(Step, RecomputationChangesNoBit) {
  const TrainConfig config = quick();
  TrainState plain = test::tiny_state(config);
  const auto reference = losses_of(plain, config, 3, 4, 1, 0);
  for (const auto mode : {models::Recompute::kSelective, models::Recompute::kFull}) {
    TrainState state = test::tiny_state(config);
    state.model->memory().set_recompute(mode);
    EXPECT_EQ(losses_of(state, config, 3, 4, 1, 0), reference);
    expect_same_parameters(plain, state, 0.0);
  }
}

TEST(Step, LossFallsInEveryPrecision) {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const TrainConfig config = quick();
    TrainState state = test::tiny_state(config, dtype);
    if (dtype == at::kHalf) state.loss_scaler = optim::LossScaler(optim::LossScaleConfig{});
    const auto losses = losses_of(state, config, 30, 8, 1, 0);
    EXPECT_LT(losses.back(), 0.6 * losses.front()) << at::toString(dtype);
  }
}

TEST(Step, ANonFiniteStepLeavesEverythingAsItWas) {
  const TrainConfig config = quick();
  TrainState state = test::tiny_state(config), untouched = test::tiny_state(config);
  for (auto& parameter : state.model->parameters()) {
    if (parameter.name() != "model.norm.weight") continue;
    at::NoGradGuard no_grad;
    parameter.tensor.fill_(std::numeric_limits<float>::infinity());
  }
  const StepResult result =
      run_step(state, test::step_of(toys(4), 4, 1, 0), config, config.schedule.shape);
  EXPECT_TRUE(result.skipped);
  EXPECT_FALSE(result.bad_parameters.empty());
  EXPECT_EQ(state.bad_steps_in_row, 1);
  EXPECT_EQ(state.optimizer->updates(), 0);
  for (const optim::StatePart& part : state.optimizer->state(false))
    EXPECT_EQ(part.values.f32().abs().sum().item<double>(), 0) << part.name;
}

/// fp16, with gradients that overflow at the scales from which the search begins.
TrainState overflowing(const TrainConfig& config, double min_scale = 1) {
  TrainState state = test::tiny_state(config, at::kHalf);
  state.loss_scaler = optim::LossScaler(
      optim::LossScaleConfig{.initial_scale = 4294967296.0, .min_scale = min_scale});
  return state;
}

TEST(Step, ASearchForTheLossScaleLeavesNoTraceInWhatIsTrained) {
  const TrainConfig config = quick();
  const data::StepBatches batches = test::step_of(toys(4), 4, 1, 0);
  TrainState searching = overflowing(config);
  int64_t repeats = 0;
  StepResult found = run_step(searching, batches, config, config.schedule.shape);
  for (; found.repeats; ++repeats) {
    EXPECT_TRUE(found.skipped);
    EXPECT_EQ(searching.step, 0);
    EXPECT_EQ(searching.tokens_seen, 0);
    EXPECT_EQ(searching.skipped_steps + searching.bad_steps_in_row, 0);
    found = run_step(searching, batches, config, config.schedule.shape);
  }
  EXPECT_GT(repeats, 3);
  EXPECT_EQ(found.loss_scale, std::exp2(32 - static_cast<double>(repeats)));
  // The same as a run that began with what was found.
  TrainState direct = test::tiny_state(config, at::kHalf);
  direct.loss_scaler = optim::LossScaler(optim::LossScaleConfig{.initial_scale = found.loss_scale});
  const StepResult at_once = run_step(direct, batches, config, config.schedule.shape);
  EXPECT_EQ(found.loss, at_once.loss);
  EXPECT_EQ(found.grad_norm, at_once.grad_norm);
  EXPECT_EQ(searching.step, 1);
  EXPECT_EQ(searching.tokens_seen, direct.tokens_seen);
  EXPECT_EQ(searching.loss_scaler.state(), direct.loss_scaler.state());
  expect_same_parameters(searching, direct, 0.0);
}

TEST(Step, GradientsThatOverflowAtTheLeastLossScaleAreAnError) {
  const TrainConfig config = quick();
  TrainState state = overflowing(config, /*min_scale=*/1073741824.0);
  const auto step = [&] {
    return run_step(state, test::step_of(toys(4), 4, 1, 0), config, config.schedule.shape);
  };
  EXPECT_TRUE(step().repeats);
  EXPECT_TRUE(step().repeats);  // now at 2^30
  try {
    step();
    FAIL() << "must throw";
  } catch (const NumericError& error) {
    EXPECT_THAT(error.what(),
                testing::AllOf(
                    testing::HasSubstr("step 1: gradients overflow in fp16 even at a loss "
                                       "scale of 1.07374e+09"),
                    testing::HasSubstr("min_loss_scale"), testing::HasSubstr("first in model.")));
  }
}

TEST(Step, ALossThatIsNoNumberIsNoMatterOfTheScale) {
  const TrainConfig config = quick();
  TrainState state = overflowing(config);
  for (auto& parameter : state.model->parameters()) {
    if (parameter.name() != "model.norm.weight") continue;
    at::NoGradGuard no_grad;
    parameter.tensor.fill_(std::numeric_limits<float>::infinity());
  }
  for (int64_t step = 1; step <= 3; ++step) {
    const StepResult result =
        run_step(state, test::step_of(toys(4), 4, 1, 0), config, config.schedule.shape);
    EXPECT_TRUE(result.skipped);
    EXPECT_FALSE(result.repeats);
    EXPECT_EQ(state.bad_steps_in_row, step);
  }
}

TEST(Step, PassesThroughLayersAreCountedAsTheyAreMade) {
  const TrainConfig config = quick();
  for (const models::Recompute recompute :
       {models::Recompute::kNone, models::Recompute::kSelective, models::Recompute::kFull}) {
    TrainState state = test::tiny_state(config);
    state.model->memory().set_recompute(recompute);
    losses_of(state, config, 1, 2, 3, 0);
    // Three micro-batches through two layers.
    EXPECT_EQ(state.model->layer_passes().forward, 6);
    EXPECT_EQ(state.model->layer_passes().backward, 6);
    evaluate(*state.model, *language_modelling(), toys(4), {.batch_size = 2});
    EXPECT_EQ(state.model->layer_passes().forward, 6 + 4);
    EXPECT_EQ(state.model->layer_passes().backward, 6);
  }
}

TEST(Step, WhatIsNotFiniteIsNamedBeforeItIsSaved) {
  const TrainConfig config = quick();
  TrainState state = test::tiny_state(config, at::kBFloat16);
  EXPECT_NO_THROW(require_finite(state));
  const auto complaint = [&] {
    try {
      require_finite(state);
      return std::string();
    } catch (const NumericError& error) {
      return std::string(error.what());
    }
  };
  const parallel::Parameter& parameter = *state.optimizer->parameters()[1];
  at::Tensor first = parameter.tensor.detach().view({-1})[3];
  const at::Tensor kept = first.clone();
  first.fill_(std::numeric_limits<float>::infinity());
  EXPECT_NE(complaint().find("the weight " + parameter.name() + " is not finite"),
            std::string::npos)
      << complaint();
  first.copy_(kept);
  at::Tensor moment = state.optimizer->state(false)[1].values.f32();
  moment.view({-1})[0].fill_(std::numeric_limits<float>::quiet_NaN());
  EXPECT_NE(complaint().find("the optimizer's exp_avg_sq."), std::string::npos) << complaint();
}

TEST(Step, WhatFilesHoldIsTheSameBits) {
  const danlu::test::TemporaryDirectory directory;
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const auto weights_of = [&](const parallel::Keeping& keeping) {
      TrainConfig config = quick();
      config.keeping = keeping;
      TrainState state = test::tiny_state(config, dtype);
      losses_of(state, config, 5, 2, 2, 0);
      std::vector<at::Tensor> weights;
      for (const parallel::Parameter& p : state.model->parameters())
        weights.push_back(p.tensor.detach().clone());
      return weights;
    };
    const auto expected = weights_of({});
    parallel::Keeping both, state_only;
    both.state_in = both.parameters_in = state_only.state_in = directory.path();
    for (const parallel::Keeping& keeping : {both, state_only}) {
      const auto got = weights_of(keeping);
      ASSERT_EQ(got.size(), expected.size());
      for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(at::equal(got[i], expected[i])) << i;
    }
  }
  parallel::Keeping nowhere;
  nowhere.state_in = directory / "nothing";
  TrainConfig config = quick();
  config.keeping = nowhere;
  EXPECT_THAT(danlu::test::error_of<IoError>([&] { test::tiny_state(config); }),
              testing::HasSubstr("nothing: no file can be made there"));
}

TEST(Step, AStepWithoutTargetsIsAnError) {
  std::vector<data::Sample> samples = test::toy_samples(2);
  for (auto& sample : samples) std::fill(sample.labels.begin(), sample.labels.end(), -100);
  const TrainConfig config = quick();
  TrainState state = test::tiny_state(config);
  const auto batches = test::step_of(std::make_shared<data::VectorSource>(samples), 2, 1, 0);
  EXPECT_THROW(run_step(state, batches, config, config.schedule.shape), DataError);
}

TEST(Evaluation, IsTheTokenMeanOverEverythingWhateverTheBatchSize) {
  const TrainConfig config = quick();
  TrainState state = test::tiny_state(config);
  const Evaluation one = evaluate(*state.model, *language_modelling(), toys(10), {.batch_size = 1});
  const Evaluation all = evaluate(*state.model, *language_modelling(), toys(10),
                                  {.batch_size = 10, .max_tokens = 1000});
  EXPECT_NEAR(one.loss, all.loss, 1e-5);
  EXPECT_EQ(one.weight, all.weight);
  EXPECT_EQ(one.num_samples, 10);
  // ln 96 for a model that knows nothing; its initial weights are small.
  EXPECT_NEAR(one.loss, std::log(96.0), 0.6);
}

}  // namespace step_test
}  // namespace danlu::train
