// What a rollout tells beside its answers, what ranks of one model take from the first of them, and
// what is left where a use of weights fails.
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <stdexcept>

#include "base/clock.h"
#include "base/file.h"
#include "train/mesh.h"
#include "train/objectives/policy.h"
#include "train/rollout_parts.h"
#include "train/rollouts/answer_passes.h"
#include "train/rollouts/model_reward.h"

namespace danlu::train {
namespace mesh_test {
namespace {

TEST(RolloutStream, WaitingForDataIsNotDrawingAndJudging) {
  Made made;
  RolloutSettings settings = settings_of(0, 1);
  settings.told.steps = 2;
  RolloutStream stream = made.stream(settings, told());
  const double begun = steady_now_s();
  stream.next();
  const double all_s = steady_now_s() - begun;
  double sum_s = stream.data_wait_s();
  for (const auto& [name, seconds] : stream.times()) sum_s += seconds;
  EXPECT_THAT(stream.times(),
              testing::UnorderedElementsAre(testing::Key("rollout"), testing::Key("judging"),
                                            testing::Key("logprobs")));
  EXPECT_LE(sum_s, all_s) << "no second counts twice";
  stream.next();
  EXPECT_TRUE(stream.times().empty()) << "of the midst of a rollout";
}

TEST(RolloutStream, AnswersThatAreSeenAgainBringTheNumbersOfTheReference) {
  const Case c{"llama", "llama", Json::object()};
  for (const int64_t iterations : {1, 2}) {
    Made made;
    RolloutSettings settings = settings_of(0, 1);
    settings.told.iterations = iterations;
    RolloutParts parts = parts_of(*made.state.model, *made.state.links, told());
    const auto reference = parts.reference = frozen_beside(c, Mesh::single());
    RolloutStream stream(std::move(parts), settings, 0);
    const data::StepBatches step = stream.next();
    data::StepBatches without = step;
    for (data::Batch& batch : without.micro_batches)
      EXPECT_EQ(batch.token_columns.erase(kReferenceColumn), iterations > 1 ? 1u : 0u);
    if (iterations == 1) continue;
    const TrainConfig config = config_of(c);
    const auto learn = [&](const std::shared_ptr<const FrozenModel>& asked,
                           const data::StepBatches& batches) {
      TrainState state = state_of(c, Mesh::single());
      state.objective = policy_objective(settings.told.loss, asked);
      return run_step(state, batches, config, config.schedule.shape);
    };
    // Nobody is asked, which would be the policy itself.
    const StepResult got = learn(nullptr, step), wanted = learn(reference, without);
    EXPECT_GT(wanted.metrics.at("kl"), 1e-4);
    EXPECT_NEAR(got.metrics.at("kl"), wanted.metrics.at("kl"), 1e-6);
    EXPECT_NEAR(got.loss, wanted.loss, 1e-6);
    EXPECT_NEAR(got.grad_norm, wanted.grad_norm, 1e-5);
  }
}

TEST(AnswerPasses, TensorRanksHaveTheNumbersOfTheFirst) {
  Case c{"llama", "llama", Json::object()};
  c.shape.tensor = 2;
  on_ranks(c.shape, [&](const Mesh& mesh) {
    const TrainState state = state_of(c, mesh);
    DrawnAnswer answer;
    answer.prompt = {3, 4, 5};
    answer.ids = {7, 9, 2};
    std::vector<DrawnAnswer> answers = {answer};
    find_for_tokens(
        ForwardPasses(*state.model, *state.links), /*adapters=*/true,
        [&](const models::CausalLM&, const at::Tensor&, const models::ForwardInput&,
            const at::Tensor& rows_M, const at::Tensor&) {
          return at::full({rows_M.numel()}, 1.0 + static_cast<double>(mesh.rank()));
        },
        &DrawnAnswer::old, answers);
    EXPECT_EQ(answers[0].old, std::vector<float>(3, 1));
  });
}

TEST(TrainingMemory, WeightsAreNotWholeAfterAUseThatFailed) {
  Case c{"llama", "llama", Json::object()};
  c.shape.data = 2;
  c.sharding = parallel::Sharding::kParameters;
  const TrainConfig config = config_of(c);
  on_ranks(c.shape, [&](const Mesh& mesh) {
    TrainState calm = state_of(c, mesh), failed = state_of(c, mesh);
    EXPECT_THROW(failed.model->memory().with_all([] { throw std::runtime_error("of a use"); }),
                 std::runtime_error);
    const auto loss = [&](TrainState& state) {
      return run_step(state, batches_of(mesh, 0), config, config.schedule.shape).loss;
    };
    EXPECT_EQ(loss(failed), loss(calm));
  });
}

TEST(Critic, ThatOfTheBestStepIsPublishedBesideItsPolicy) {
  const Case c{"llama", "llama", Json::object()};
  const TrainState policy = state_of(c, Mesh::single());
  Case scorer = c;
  scorer.score = arch::ScoreHead{};
  Critic critic(state_of(scorer, Mesh::single()), config_of(c), {});
  const danlu::test::TemporaryDirectory run;
  const fs::path saved = run / kCriticFolder / "checkpoint-2";
  fs::create_directories(saved);
  for (const char* name : {"config.json", "model.safetensors", "DONE"})
    std::ofstream(saved / name) << "of step 2";
  critic.publish(*policy.model, run / "", 2);
  EXPECT_EQ(read_file(run / kCriticFolder / "model.safetensors"), "of step 2");
}

TEST(RolloutMesh, TensorRanksTakeTheScoresOfTheFirst) {
  Case c{"llama", "llama", Json::object()};
  c.shape.tensor = 2;
  std::array<std::vector<eval::Score>, 2> scores;
  on_ranks(c.shape, [&](const Mesh& mesh) {
    const TrainState policy = state_of(c, mesh);
    Case scorer = c;
    scorer.score = arch::ScoreHead{};
    auto judge = stage_of(scorer, mesh);
    randomise(*judge, at::kFloat);
    // A processor that rounds otherwise, and much.
    const at::NoGradGuard no_grad;
    for (const parallel::Parameter& p : judge->parameters()) {
      if (mesh.rank() == 1 && p.spec.shape.size() == 1) at::Tensor(p.tensor).mul_(1.1);
    }
    judge->freeze({"."});
    models::keep(*judge, config_of(c).keeping);
    const auto reward = model_reward("judge", std::make_shared<FrozenModel>(std::move(judge)),
                                     *policy.model, *policy.links, {7});
    eval::Completion answer;
    answer.prompt_ids = {3, 4};
    answer.ids = {9, 10, 11};
    scores[static_cast<size_t>(mesh.rank())] =
        reward->scores(std::vector<eval::Completion>(2, answer));
  });
  EXPECT_EQ(scores[1], scores[0]);
}

}  // namespace
}  // namespace mesh_test
}  // namespace danlu::train
