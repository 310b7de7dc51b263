// Answers that the limit cut, and what a rollout shows of rewards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "train/objectives/policy.h"
#include "train/rollout_parts.h"

namespace danlu::train {
namespace mesh_test {
namespace {

/// The columns of a step of which so many answers were cut.
std::map<std::string, std::vector<float>> columns_of(RolloutSettings settings, bool all_cut) {
  Made made;
  settings.told.masks_truncated = true;
  const Generator generate = [](const std::vector<Request>& requests) {
    std::vector<Answer> answers(requests.size());
    for (size_t i = 0; i < answers.size(); ++i)
      answers[i].ids = {7, static_cast<int32_t>(8 + i), 9};
    return answers;
  };
  RolloutStream stream = made.stream(settings, all_cut ? generate : told());
  return stream.next().micro_batches[0].token_columns;
}

TEST(CutAnswers, TheDistanceOfAStepWhoseAnswersWereAllCutDoesNotCount) {
  const auto columns = columns_of(settings_of(0, 1), /*all_cut=*/true);
  EXPECT_THAT(columns.at(kDistanceColumn), testing::Each(0.0F));
  EXPECT_FALSE(columns_of(settings_of(0, 1), /*all_cut=*/false).contains(kDistanceColumn));
}

TEST(CutAnswers, WhatWasCutCountsInADivisorThatCountsIt) {
  RolloutSettings settings = settings_of(0, 1);
  EXPECT_FALSE(columns_of(settings, /*all_cut=*/false).contains(kCountColumn));
  settings.told.loss.mean = settings::LossMean::kTokens;
  settings.told.loss.counts_cut = true;
  // Prompts of two tokens; answers of one token, which was cut, and of three with their end.
  EXPECT_THAT(columns_of(settings, /*all_cut=*/false).at(kCountColumn),
              testing::ElementsAre(0, 1, 0, 0, 1, 1, 1, 0));
}

/// Notes what it is asked about.
class Noting : public Odd {
 public:
  std::vector<eval::Score> scores(std::span<const eval::Completion> all) const override {
    for (const eval::Completion& one : all) seen.push_back(one);
    return Odd::scores(all);
  }
  mutable std::vector<eval::Completion> seen;
};

TEST(CutAnswers, AnswersThatWereCutAreJudgedWithAnEnd) {
  Made made;
  RolloutParts parts = parts_of(*made.state.model, *made.state.links, told());
  const auto noting = std::make_shared<Noting>();
  parts.rewards = {noting};
  RolloutSettings settings = settings_of(0, 1);
  settings.answer_end = 77;
  RolloutStream stream(std::move(parts), settings, 0);
  stream.next();
  int64_t cut = 0;
  for (const eval::Completion& one : noting->seen) {
    if (one.is_ended) continue;
    ++cut;
    EXPECT_EQ(one.missing_end, 77);
  }
  EXPECT_GT(cut, 0);
}

TEST(RolloutFigures, TheDeviationThatIsShownIsTheOneThatDivides) {
  const auto shown = [](settings::RewardScale scale) {
    Made made;
    RolloutSettings settings = settings_of(0, 1);
    settings.told.scale = scale;
    settings.told.answers = 2;
    RolloutParts parts =
        parts_of(*made.state.model, *made.state.links, [](const std::vector<Request>& requests) {
          std::vector<Answer> answers(requests.size());
          for (size_t i = 0; i < answers.size(); ++i)
            answers[i].ids = {static_cast<int32_t>(8 + i % 2), 9,
                              static_cast<int32_t>(i < 4 ? 9 : 10)};
          return answers;
        });
    RolloutStream stream(std::move(parts), settings, 0);
    stream.next();
    return stream.figures().at("reward_std");
  };
  // Shares of odd ids 2/3, 1 and 1/3, 2/3, each twice: torch.std of them and of groups.
  EXPECT_NEAR(shown(settings::RewardScale::kBatch), 0.25197632, 1e-6);
  EXPECT_NEAR(shown(settings::RewardScale::kGroup), 0.23570226, 1e-6);
}

}  // namespace
}  // namespace mesh_test
}  // namespace danlu::train
