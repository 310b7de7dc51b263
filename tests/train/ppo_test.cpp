// PPO: what tokens are worth, the policy's loss and the critic's, against verl and MindSpeed-LLM
// (shared/golden/rl/ppo).
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "base/file.h"
#include "models/weight_files.h"
#include "train/batch_input.h"
#include "train/objectives/policy.h"
#include "train/objectives/value.h"
#include "train/rollouts/token_worth.h"
#include "train/start/begin_critic.h"
#include "train/support.h"

namespace danlu::train {
namespace ppo_test {

using settings::LossMean, settings::PolicyLoss;
using test::read_tensor;

std::filesystem::path golden_dir() { return danlu::test::shared_dir() / "golden/rl"; }

std::unique_ptr<models::CausalLM> policy_model() {
  return models::load_model(golden_dir() / "grpo/policy", parallel::Mesh::single(), at::kFloat,
                            at::Device(at::kCPU));
}
std::unique_ptr<models::CausalLM> critic_model() {
  const auto source = weights::open_checkpoint_source(golden_dir() / "ppo/critic",
                                                      {.all_tensors = true, .scores = true});
  return models::load_model(source, parallel::Mesh::single(), at::kFloat, at::Device(at::kCPU));
}

struct Golden {
  std::shared_ptr<const weights::TensorSource> tensors =
      weights::open_safetensors(golden_dir() / "ppo/golden.safetensors");
  Json told = Json::parse(read_file(golden_dir() / "ppo/ppo.json"));

  at::Tensor operator()(const std::string& name) const { return read_tensor(*tensors, name); }
  settings::Critic critic() const {
    settings::Critic critic;
    critic.gamma = told.at("gamma");
    critic.lambda = told.at("lam");
    critic.kl = told.at("kl");
    critic.clip = told.at("clipv");
    critic.weight = told.at("vf");
    return critic;
  }
};

/// Row `row` of `table` at the tokens of its answer.
std::vector<float> at_tokens(const at::Tensor& table, const at::Tensor& mask, int64_t row) {
  std::vector<float> values;
  for (int64_t t = 0; t < mask.size(1); ++t) {
    if (mask[row][t].item<int64_t>()) values.push_back(table[row][t].item<float>());
  }
  return values;
}

/// Prompts are padded at the left, answers at the right.
std::vector<DrawnAnswer> answers_of(const Golden& golden) {
  const at::Tensor prompts = golden("prompt_ids"), prompt_mask = golden("prompt_mask"),
                   ids = golden("completion_ids"), mask = golden("completion_mask"),
                   old = golden("old_logps"), reference = golden("ref_logps"),
                   values = golden("old_values");
  std::vector<DrawnAnswer> answers;
  for (int64_t row = 0; row < ids.size(0); ++row) {
    DrawnAnswer answer;
    answer.is_ended = true;
    for (const float id : at_tokens(prompts, prompt_mask, row))
      answer.prompt.push_back(static_cast<int32_t>(id));
    for (const float id : at_tokens(ids, mask, row)) answer.ids.push_back(static_cast<int32_t>(id));
    answer.old = at_tokens(old, mask, row);
    answer.reference = at_tokens(reference, mask, row);
    answer.values = at_tokens(values, mask, row);
    answers.push_back(answer);
  }
  return answers;
}

std::vector<std::optional<double>> scores_of(const Golden& golden) {
  const at::Tensor scores = golden("scores");
  std::vector<std::optional<double>> rewards;
  for (int64_t i = 0; i < scores.numel(); ++i) rewards.emplace_back(scores[i].item<float>());
  return rewards;
}

std::vector<data::Batch> batches_of(const Golden& golden) {
  std::map<std::string, double> figures;
  const std::vector<DrawnAnswer> answers = answers_of(golden);
  const auto worth = worth_of_tokens(answers, scores_of(golden), golden.critic(), false, figures);
  std::vector<data::Sample> all;
  for (size_t i = 0; i < answers.size(); ++i) {
    data::Sample sample = sample_of(answers[i], false);
    set_column(answers[i], kAdvantageColumn, worth[i].advantages, sample);
    set_column(answers[i], kReturnColumn, worth[i].returns, sample);
    set_column(answers[i], kValueColumn,
               std::vector<double>(answers[i].values.begin(), answers[i].values.end()), sample);
    all.push_back(sample);
  }
  return {data::make_batch({all.begin(), all.begin() + 3}),
          data::make_batch({all.begin() + 3, all.end()})};
}

TEST(CriticSchedule, HasThePolicysShapeAndItsOwnPeak) {
  const settings::ScheduleConfig policy{.lr = 2e-5, .min_lr = 2e-6, .start_lr = 1e-6};
  EXPECT_EQ(critic_schedule(policy, 0).lr, 2e-5);
  const settings::ScheduleConfig critic = critic_schedule(policy, 1e-5);
  EXPECT_DOUBLE_EQ(critic.lr, 1e-5);
  EXPECT_DOUBLE_EQ(critic.min_lr, 1e-6);
  EXPECT_DOUBLE_EQ(critic.start_lr, 5e-7);
  // A policy that does not learn.
  const settings::ScheduleConfig alone = critic_schedule({.lr = 0}, 1e-5);
  EXPECT_EQ(alone.lr, 1e-5);
  EXPECT_EQ(alone.min_lr, 0);
  EXPECT_EQ(alone.start_lr, 0);
}

struct Figures {
  double loss = 0;
  std::map<std::string, double> metrics;
};

/// Over two micro-batches, whose sums are divided once; leaves gradients.
Figures pass(const models::CausalLM& model, const Objective& objective,
             const std::vector<data::Batch>& batches) {
  for (const auto& parameter : model.parameters()) parameter.tensor.set_requires_grad(true);
  double weight = 0;
  for (const data::Batch& batch : batches) weight += objective.weight(batch);
  Figures figures;
  std::map<std::string, std::pair<double, double>> sums;
  for (const data::Batch& batch : batches) {
    const models::ForwardInput input = evaluation_input(model, batch);
    const Loss loss = objective.evaluate(model, model.forward(input), input, batch, {}, 1 / weight);
    figures.loss += loss.sum.item<double>() / weight;
    for (const auto& [name, metric] : loss.metrics) {
      sums[name].first += metric.sum.item<double>();
      sums[name].second += metric.weight.item<double>();
    }
    torch::autograd::backward({loss.sum}, {grad_of_sum(loss, 1 / weight)});
  }
  for (const auto& [name, sum] : sums) figures.metrics[name] = sum.first / sum.second;
  return figures;
}

void expect_gradients(const models::CausalLM& model, const Golden& golden,
                      const std::string& prefix) {
  int64_t compared = 0;
  for (const auto& parameter : model.parameters()) {
    if (!golden.tensors->find(prefix + parameter.name())) continue;
    const at::Tensor expected = golden(prefix + parameter.name());
    const double difference = (parameter.tensor.grad() - expected).abs().max().item<double>();
    EXPECT_LT(difference, 2e-5 + 1e-4 * expected.abs().max().item<double>()) << parameter.name();
    ++compared;
  }
  EXPECT_GT(compared, 20) << "gradients of every parameter";
}

TEST(Ppo, TokensAreWorthWhatVerlSays) {
  DANLU_REQUIRES_SHARED();
  const Golden golden;
  const std::vector<DrawnAnswer> answers = answers_of(golden);
  std::map<std::string, double> figures;
  const auto worth = worth_of_tokens(answers, scores_of(golden), golden.critic(), false, figures);
  const at::Tensor mask = golden("completion_mask"), advantages = golden("advantages"),
                   returns = golden("returns"), rewards = golden("token_rewards");
  for (int64_t row = 0; row < mask.size(0); ++row) {
    const auto expected = at_tokens(advantages, mask, row), sums = at_tokens(returns, mask, row);
    const TokenWorth& got = worth[static_cast<size_t>(row)];
    ASSERT_EQ(got.advantages.size(), expected.size());
    for (size_t t = 0; t < expected.size(); ++t) {
      EXPECT_NEAR(got.advantages[t], expected[t], 1e-5) << row << ' ' << t;
      EXPECT_NEAR(got.returns[t], sums[t], 1e-5) << row << ' ' << t;
    }
  }
  EXPECT_NEAR(figures.at("objective/rlhf_reward"), rewards.sum().item<double>() / 8, 1e-5);
}

// Numbers of TRL 0.9's controller, computed with torch.
TEST(Ppo, TheWeightOfTheDistanceFollowsItsTarget) {
  settings::Critic critic;
  EXPECT_EQ(critic.kl_after(0.2, 100, 128), 0.2) << "without a target it stays";
  critic.kl_target = 6;
  EXPECT_DOUBLE_EQ(critic.kl_after(0.2, 6.5, 128), 0.20021333333333335);
  EXPECT_DOUBLE_EQ(critic.kl_after(0.2, 100, 128), 0.200512);
  EXPECT_DOUBLE_EQ(critic.kl_after(0.2, -3, 128), 0.199488);
  EXPECT_DOUBLE_EQ(critic.kl_after(0.2, 6, 128), 0.2);
}

TEST(Ppo, AnswersThatNobodyJudgedTeachNothing) {
  DrawnAnswer judged;
  judged.prompt = {1};
  judged.ids = {2, 3};
  judged.is_ended = false;
  judged.values = {0.5F, 0.25F};
  settings::Critic critic;
  critic.kl = 0;
  critic.missing_end_penalty = 2;
  std::map<std::string, double> figures;
  const auto worth = worth_of_tokens({judged, judged}, std::vector<std::optional<double>>{1.0, {}},
                                     critic, false, figures);
  EXPECT_THAT(worth[1].advantages, testing::ElementsAre(0, 0));
  EXPECT_THAT(worth[1].returns, testing::ElementsAre(0.5, 0.25)) << "what it expects already";
  EXPECT_EQ(worth[0].returns[1], -1) << "1 less the penalty of an answer that was cut";
  EXPECT_EQ(figures.at("objective/scores"), -1);
}

TEST(Ppo, AnswersThatAreMaskedShiftNoOther) {
  DrawnAnswer ended, cut;
  for (DrawnAnswer* answer : {&ended, &cut}) {
    answer->prompt = {1};
    answer->ids = {2, 3};
    answer->values = {0.5F, 0.25F};
    answer->is_ended = answer == &ended;
  }
  settings::Critic critic;
  critic.kl = 0;
  for (const bool whitens : {false, true}) {
    critic.whitens_rewards = whitens;
    std::map<std::string, double> figures;
    const auto alone = worth_of_tokens({ended}, std::vector<std::optional<double>>{1.0}, critic,
                                       /*masks_truncated=*/true, figures);
    const auto worth =
        worth_of_tokens({ended, cut}, std::vector<std::optional<double>>{1.0, 9.0}, critic,
                        /*masks_truncated=*/true, figures);
    EXPECT_EQ(worth[0].advantages, alone[0].advantages) << whitens;
    EXPECT_EQ(worth[0].returns, alone[0].returns) << whitens;
    EXPECT_THAT(worth[1].advantages, testing::ElementsAre(0, 0));
    EXPECT_THAT(worth[1].returns, testing::ElementsAre(0.5, 0.25));
  }
}

TEST(Ppo, RewardsOfTokensAreWhitenedAboutTheirMean) {
  DrawnAnswer three, two, unjudged;
  for (DrawnAnswer* answer : {&three, &two, &unjudged}) {
    answer->prompt = {1};
    answer->ids.assign(answer == &three ? 3 : 2, 5);
    answer->values.assign(answer->ids.size(), 0.0F);
    answer->is_ended = true;
  }
  settings::Critic critic;
  critic.kl = 0;
  critic.lambda = 1;
  critic.whitens_rewards = true;
  std::map<std::string, double> figures;
  const auto worth =
      worth_of_tokens({three, unjudged, two}, std::vector<std::optional<double>>{3.0, {}, 1.0},
                      critic, false, figures);
  // 0 0 3 and 0 1: their mean is 0.8, their variance (n - 1) 1.7. A return is
  // the sum of what follows.
  const auto white = [](double reward) { return (reward - 0.8) / std::sqrt(1.7 + 1e-8) + 0.8; };
  EXPECT_NEAR(worth[0].returns[2], white(3), 1e-12);
  EXPECT_NEAR(worth[0].returns[0], 2 * white(0) + white(3), 1e-12);
  EXPECT_NEAR(worth[2].returns[0], white(0) + white(1), 1e-12);
  EXPECT_THAT(worth[1].returns, testing::ElementsAre(0, 0));
  EXPECT_EQ(figures.at("objective/scores"), 2) << "users are shown what the rewards were";
}

TEST(Ppo, ThePolicysLossAndGradients) {
  DANLU_REQUIRES_SHARED();
  const Golden golden;
  PolicyLoss loss;
  loss.mean = LossMean::kTokens;
  const auto policy = policy_model();
  const Figures found = pass(*policy, *policy_objective(loss), batches_of(golden));
  EXPECT_NEAR(found.loss, golden("pg_loss").item<float>(), 2e-5);
  EXPECT_NEAR(found.metrics.at("clip_ratio/region_mean"), golden.told.at("clipfrac"), 1e-5);
  expect_gradients(*policy, golden, "policy_grad.");
}

TEST(Ppo, TheCriticsLossAndGradients) {
  DANLU_REQUIRES_SHARED();
  const Golden golden;
  const settings::Critic told = golden.critic();
  const auto critic = critic_model();
  const Figures found = pass(*critic, *value_objective(told.weight, told.clip), batches_of(golden));
  EXPECT_NEAR(found.metrics.at("loss/value_avg"), golden("vf_loss").item<float>(), 2e-5);
  EXPECT_NEAR(found.loss, told.weight * golden("vf_loss").item<float>(), 2e-5);
  EXPECT_NEAR(found.metrics.at("val/clipfrac_avg"), golden.told.at("vf_clipfrac"), 1e-5);
  expect_gradients(*critic, golden, "critic_grad.");
}

}  // namespace ppo_test
}  // namespace danlu::train
