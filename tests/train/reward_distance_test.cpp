// The distance to the reference in the rewards of answers, and rewards that are whitened each by
// itself: against plain loops.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "train/objectives/policy.h"
#include "train/rollout_parts.h"
#include "train/rollouts/advantages.h"

namespace danlu::train {
namespace mesh_test {
namespace {

/// The sum of log-probabilities of the last `count` ids.
double logprob_of_end(const models::CausalLM& model, const std::vector<int32_t>& ids,
                      size_t count) {
  const std::vector<float> each = logprobs_now(model, ids, count);
  return std::accumulate(each.begin(), each.end(), 0.0);
}

/// What each answer of a step is worth, in order, with its prompt's tokens and its own.
struct Worth {
  std::vector<int32_t> ids;
  size_t tokens = 0;
  double worth = 0;
};

std::vector<Worth> worths_in(const data::StepBatches& step) {
  std::vector<Worth> all;
  for (const data::Batch& batch : step.micro_batches) {
    for (size_t i = 0; i + 1 < batch.segment_starts.size(); ++i) {
      Worth& one = all.emplace_back();
      for (auto t = batch.segment_starts[i]; t < batch.segment_starts[i + 1]; ++t) {
        const auto at = static_cast<size_t>(t);
        one.ids.push_back(static_cast<int32_t>(batch.ids[at]));
        if (batch.targets[at] >= 0) ++one.tokens;
        if (batch.targets[at] >= 0) one.worth = batch.token_columns.at(kAdvantageColumn)[at];
      }
    }
  }
  return all;
}

/// Every answer is judged: the share of odd ids.
class OddOfAll : public eval::Reward {
 public:
  std::string name() const override { return "odd"; }
  std::vector<eval::Score> scores(std::span<const eval::Completion> all) const override {
    std::vector<eval::Score> scores;
    for (const eval::Completion& one : all) scores.emplace_back(share(one.ids));
    return scores;
  }
  static double share(std::span<const int32_t> ids) {
    const auto odd = std::count_if(ids.begin(), ids.end(), [](int32_t id) { return id % 2 == 1; });
    return static_cast<double>(odd) / static_cast<double>(ids.size());
  }
};

constexpr double kWeight = 0.3;

TEST(RewardDistance, IsTakenFromRewardsBeforeTheyAreCompared) {
  const Case c{"llama", "llama", Json::object()};
  for (const int64_t parts : {1, 3}) {
    SCOPED_TRACE(parts);
    Made made;
    RolloutSettings settings = settings_of(0, 1);
    settings.told.loss.kl = 0;
    settings.told.reward_kl = kWeight;
    settings.told.parts = parts;
    EXPECT_TRUE(settings.told.has_reference());
    const auto ranks = std::make_shared<const DrawingRanks>(Mesh::single());
    RolloutParts of = parts_of(*made.state.model, *made.state.links, ranks);
    of.rewards = {std::make_shared<OddOfAll>()};
    of.reference = frozen_beside(c, Mesh::single());
    const models::CausalLM& reference = of.reference->stage();
    RolloutStream stream(std::move(of), settings, 0);
    const std::vector<Worth> got = worths_in(stream.next());
    ASSERT_EQ(got.size(), 8u);
    double distances = 0, pure = 0;
    for (size_t group = 0; group < 8; group += 4) {
      double rewards[4], mean = 0, squares = 0;
      for (size_t i = 0; i < 4; ++i) {
        const Worth& one = got[group + i];
        const double distance = logprob_of_end(*made.state.model, one.ids, one.tokens) -
                                logprob_of_end(reference, one.ids, one.tokens);
        const double odd = OddOfAll::share(std::span(one.ids).last(one.tokens));
        distances += distance / 8;
        pure += odd / 8;
        rewards[i] = odd - kWeight * distance;
        mean += rewards[i] / 4;
      }
      for (const double reward : rewards) squares += (reward - mean) * (reward - mean);
      for (size_t i = 0; i < 4; ++i) {
        EXPECT_NEAR(got[group + i].worth, (rewards[i] - mean) / (std::sqrt(squares / 3) + 1e-4),
                    2e-4)
            << group + i;
      }
    }
    EXPECT_GT(std::fabs(distances), 1e-3) << "the reference is another model";
    EXPECT_NEAR(stream.figures().at("kl"), distances, 1e-4);
    EXPECT_NEAR(stream.figures().at("reward"), pure, 1e-9) << "what judges gave";
  }
}

TEST(RewardDistance, RanksFindItTogether) {
  const auto learnt = [](const MeshShape& shape, parallel::Sharding sharding) {
    std::vector<double> figures;
    std::mutex mutex;
    Case c{"llama", "llama", {{"num_hidden_layers", 4}}};
    c.shape = shape;
    c.sharding = sharding;
    on_drawing_ranks(shape, [&](const Mesh& mesh, const auto& ranks) {
      TrainState state = state_of(c, mesh);
      const TrainConfig config = config_of(c);
      RolloutSettings settings = settings_of(mesh.shape().data_rank(mesh.rank()), shape.data);
      settings.told.loss.kl = 0;
      settings.told.reward_kl = kWeight;
      settings.told.loss.temperature = 1;
      settings.told.top_k = 1;
      settings.told.repetition_penalty = 1.3;
      settings.told.scale = settings::RewardScale::kNone;
      state.objective = policy_objective(settings.told.loss);
      RolloutParts parts = parts_of(*state.model, *state.links, ranks);
      parts.rewards = {std::make_shared<OddOfAll>()};
      parts.reference = frozen_beside(c, mesh);
      RolloutStream stream(std::move(parts), settings, 0);
      for (int step = 0; step < 3; ++step) {
        const StepResult result = run_step(state, stream.next(), config, config.schedule.shape);
        if (mesh.rank() != 0) continue;
        const std::lock_guard lock(mutex);
        figures.insert(figures.end(), {result.loss, stream.figures().at("kl")});
      }
    });
    return figures;
  };
  const auto none = parallel::Sharding::kNone;
  const std::vector<double> one = learnt({}, none);
  ASSERT_EQ(one.size(), 6u);
  for (const MeshShape& shape : {MeshShape{.data = 2}, MeshShape{.tensor = 2},
                                 MeshShape{.pipeline = 2}, MeshShape{.tensor = 2, .data = 2}}) {
    const std::vector<double> got =
        learnt(shape, shape.data > 1 ? parallel::Sharding::kParameters : none);
    ASSERT_EQ(got.size(), one.size());
    for (size_t i = 0; i < one.size(); ++i)
      EXPECT_NEAR(got[i], one[i], 2e-5) << i << " tp" << shape.tensor << " pp" << shape.pipeline;
  }
}

/// What OddOfAll leaves of 1, so that the sum of both is the same for every answer.
class EvenOfAll : public OddOfAll {
 public:
  std::string name() const override { return "even"; }
  std::vector<eval::Score> scores(std::span<const eval::Completion> all) const override {
    std::vector<eval::Score> scores;
    for (const eval::Completion& one : all) scores.emplace_back(1 - share(one.ids));
    return scores;
  }
};

TEST(AdvantagesByRule, PromptsWhoseRulesDifferDoNotGiveWay) {
  for (const auto scale : {settings::RewardScale::kEachRule, settings::RewardScale::kGroup}) {
    Made made;
    RolloutSettings settings = settings_of(0, 1);
    settings.told.loss.kl = 0;
    settings.told.max_resamples = 2;
    settings.told.scale = scale;
    settings.told.reward_weights = {0.5, 0.5};
    const auto ranks = std::make_shared<const DrawingRanks>(Mesh::single());
    RolloutParts parts = parts_of(*made.state.model, *made.state.links, ranks);
    parts.rewards = {std::make_shared<OddOfAll>(), std::make_shared<EvenOfAll>()};
    RolloutStream stream(std::move(parts), settings, 0);
    stream.next();
    const bool differ = scale == settings::RewardScale::kEachRule;
    EXPECT_EQ(stream.figures().at("frac_reward_zero_std"), differ ? 0 : 1);
    EXPECT_EQ(stream.figures().at("resampled_prompts"), differ ? 0 : 4);
  }
}

TEST(AdvantagesByRule, EachRulesScoresCountByTheirOwnDeviation) {
  // Two groups of three answers, two rules, the second of which cannot judge one answer; the last
  // answer is judged by neither.
  const std::vector<std::vector<std::optional<double>>> scores = {
      {1.0, 0.0, 2.0, 5.0, 5.0, std::nullopt},
      {100.0, 300.0, std::nullopt, 10.0, 30.0, std::nullopt}};
  const double weights[] = {1, 0.5};
  const std::vector<double> got = advantages_by_rule(scores, weights, 3);
  // Rule 1: deviations 1 and 0; rule 2: 100 √2 and 10 √2.
  const double half = 0.5 / std::sqrt(2.0);
  const std::vector<double> sums = {0 - half, -1 + half, 1, 0 - half, 0 + half};
  double mean = 0, squares = 0;
  for (const double sum : sums) mean += sum / 5;
  for (const double sum : sums) squares += (sum - mean) * (sum - mean);
  for (size_t i = 0; i < 5; ++i)
    EXPECT_NEAR(got[i], (sums[i] - mean) / std::sqrt(squares / 4), 1e-6) << i;
  EXPECT_EQ(got[5], 0) << "nothing judged it";
}

}  // namespace
}  // namespace mesh_test
}  // namespace danlu::train
