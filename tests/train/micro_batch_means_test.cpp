// The mean of micro-batches' means: against single micro-batches, on meshes, and in runs of before.
#include <ATen/ops/log_softmax.h>
#include <gtest/gtest.h>

#include "train/batch_input.h"
#include "train/mesh.h"
#include "train/start/earlier_run.h"

namespace danlu::train {
namespace mesh_test {
namespace {

/// Two samples to a micro-batch, each a pass of its own.
constexpr Cut kMicroBatches{2, 0};

Case means_case(bool predicts) {
  Case c{"means", "qwen2", Json::object()};
  if (predicts) {
    c.family = "glm4_moe";
    c.changes = {{"num_nextn_predict_layers", 1}};
    c.prediction = {.layers = 1, .loss_factor = 0.3};
    c.routers = {settings::BalanceLoss::kSequence, 0.05, 0.01};
  }
  c.objective = means_of_micro_batches();
  return c;
}

/// What each micro-batch of the first step gives alone, by the mean over its own targets.
Outcome mean_of_single_steps(Case c) {
  c.objective = language_modelling();
  const TrainConfig config = config_of(c);
  const data::StepBatches whole = batches_of(Mesh::single(), 0, kMicroBatches);
  const auto count = static_cast<double>(whole.micro_batches.size());
  Outcome mean;
  mean.losses = {0};
  for (const data::Batch& batch : whole.micro_batches) {
    TrainState state = state_of(c, Mesh::single());
    data::StepBatches one = whole;
    one.micro_batches = {batch};
    mean.losses[0] += run_step(state, one, config, config.schedule.shape).loss / count;
    std::map<std::string, at::Tensor> gradients;
    assemble_units(
        state.gradients->store(), [&](size_t u) { return state.gradients->share(u); }, gradients);
    for (const auto& [name, gradient] : gradients) {
      const auto [at, first] = mean.gradients.try_emplace(name, gradient / count);
      if (!first) at->second.add_(gradient / count);
    }
  }
  return mean;
}

class MeansOf : public testing::TestWithParam<bool> {};

TEST_P(MeansOf, MicroBatchesHaveTheGradientsOfEachAlone) {
  const Case c = means_case(GetParam());
  const Outcome wanted = mean_of_single_steps(c), got = train(c, {}, 1, kMicroBatches);
  EXPECT_NEAR(got.losses[0], wanted.losses[0], 1e-6 * wanted.losses[0]);
  for (const auto& [name, gradient] : wanted.gradients) {
    const double largest = gradient.abs().max().item<double>();
    const double far = (got.gradients.at(name) - gradient).abs().max().item<double>();
    EXPECT_LE(far, 1e-5 * largest) << name;
  }
  Case by_targets = c;
  by_targets.objective = language_modelling();
  EXPECT_GT(std::abs(train(by_targets, {}, 1, kMicroBatches).losses[0] - wanted.losses[0]), 5e-5)
      << "these micro-batches have different numbers of targets";
}

INSTANTIATE_TEST_SUITE_P(WithAndWithoutPredictions, MeansOf, testing::Bool());

TEST(MeansOfMicroBatches, AreMinusLogPOfAllLogits) {
  const Case c = means_case(false);
  auto model = stage_of(c, Mesh::single());
  randomise(*model, c.first_values);
  const at::NoGradGuard no_grad;
  const data::StepBatches step = batches_of(Mesh::single(), 0, kMicroBatches);
  double means = 0;
  for (const data::Batch& batch : step.micro_batches) {
    const at::Tensor logprobs = at::log_softmax(
        model->logits(model->forward_hidden(evaluation_input(*model, batch))).to(at::kDouble), 1);
    double sum = 0, targets = 0;
    for (size_t i = 0; i < batch.targets.size(); ++i) {
      if (batch.targets[i] < 0) continue;
      sum -= logprobs[static_cast<int64_t>(i)][batch.targets[i]].item<double>();
      ++targets;
    }
    means += sum / targets / static_cast<double>(step.micro_batches.size());
  }
  EXPECT_NEAR(train(c, {}, 1, kMicroBatches).losses[0], means, 1e-5 * means);
}

TEST(MeansOfMicroBatches, AreThoseOfOneProcessOnMeshes) {
  struct MeansPlace {
    const char* name;
    MeshShape shape;
    parallel::Sharding sharding = parallel::Sharding::kNone;
  };
  const MeansPlace list[] = {{"zero3", {.data = 2}, parallel::Sharding::kParameters},
                             {"tp2sp", {.tensor = 2, .sequence_parallel = true}},
                             {"pp2", {.pipeline = 2}},
                             {"cp2", {.context = {.ring = 2, .window = 2}}}};
  const Case alone = means_case(false);
  const Outcome one = train(alone, {}, 3, kMicroBatches);
  for (const MeansPlace& place : list) {
    SCOPED_TRACE(place.name);
    Case c = alone;
    c.sharding = place.sharding;
    expect_numbers_of(one, train(c, place.shape, 3, kMicroBatches));
  }
  const Case predicting = means_case(true);
  const Outcome one_predicting = train(predicting, {}, 2, kMicroBatches);
  for (const MeshShape& shape :
       {MeshShape{.data = 2, .expert = 2}, MeshShape{.data = 2, .pipeline = 2, .expert = 2}})
    expect_numbers_of(one_predicting, train(predicting, shape, 2, kMicroBatches));
}

TEST(MeansOfMicroBatches, ARunOfBeforeGoesOnAsItBegan) {
  const auto resumed = [](const Json& identity, bool is_told) {
    TrainConfig config;
    config.objective.averages_micro_batches = config.data.runs_on = true;
    config.data.splits_rows = config.data.texts_end_epochs = true;
    config.seed = 7;
    if (is_told) config.given_as["loss_average"] = "--loss_average";
    EarlierRun earlier;
    earlier.checkpoint.emplace();
    earlier.checkpoint->trainer_state = {{"identity", identity}};
    go_on_as_begun(earlier, config);
    return config;
  };
  const TrainConfig before = resumed(Json::object(), false);
  EXPECT_FALSE(before.objective.averages_micro_batches);
  EXPECT_FALSE(before.data.runs_on);
  EXPECT_EQ(before.settings.at("loss_average"), "targets");
  const TrainConfig same =
      resumed({{"loss_average", "micro_batches"}, {"steps_run_on", true}}, false);
  EXPECT_TRUE(same.objective.averages_micro_batches);
  EXPECT_TRUE(same.data.runs_on);
  EXPECT_TRUE(resumed(Json::object(), true).objective.averages_micro_batches)
      << "the line's word, of which a difference is then said";
  EXPECT_FALSE(before.data.splits_rows);
  EXPECT_FALSE(before.data.texts_end_epochs);
  EXPECT_EQ(before.data.seed, 42u);
  const TrainConfig seeded = resumed({{"data_seed", 7}}, false);
  EXPECT_EQ(seeded.data.seed, 7u) << "the run's seed, which its rows were drawn by";
  EXPECT_EQ(seeded.args.at("data_seed"), 7);
  EXPECT_EQ(resumed({{"data_seed", 9}}, false).data.seed, 42u) << "of no such run";
  EXPECT_TRUE(resumed({{"splits_rows", true}}, false).data.splits_rows);
}

}  // namespace
}  // namespace mesh_test
}  // namespace danlu::train
