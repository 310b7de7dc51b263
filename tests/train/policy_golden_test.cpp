// The clipped loss of drawn answers, and what they are worth, against TRL and verl
// (shared/golden/rl/grpo, advantages).
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <functional>
#include <utility>

#include "base/file.h"
#include "models/weight_files.h"
#include "train/batch_input.h"
#include "train/objectives/policy.h"
#include "train/rollouts/advantages.h"
#include "train/support.h"

namespace danlu::train {
namespace policy_golden_test {

using settings::Advantage, settings::LossMean, settings::PolicyLoss, settings::RatioLevel,
    settings::RewardScale;
using test::read_tensor;

std::filesystem::path golden_dir() { return danlu::test::shared_dir() / "golden/rl"; }

std::unique_ptr<models::CausalLM> model(const std::string& name, at::ScalarType dtype) {
  return models::load_model(golden_dir() / "grpo" / name, parallel::Mesh::single(), dtype,
                            at::Device(at::kCPU));
}

struct Drawn {
  bool has_old = true, has_reference = true;
  std::vector<int64_t> masked = {};  ///< answers without a target
};

/// Prompts are padded at the left, answers at the right.
std::vector<data::Sample> samples(const weights::TensorSource& golden, const Drawn& drawn) {
  const auto tensor = [&](const char* name) { return read_tensor(golden, name); };
  const at::Tensor prompts = tensor("prompt_ids"), prompt_mask = tensor("prompt_mask"),
                   answers = tensor("completion_ids"), mask = tensor("completion_mask"),
                   advantages = tensor("advantages"), old = tensor("old_per_token_logps"),
                   reference = tensor("ref_per_token_logps");
  std::vector<data::Sample> samples;
  for (int64_t row = 0; row < answers.size(0); ++row) {
    data::Sample sample;
    const bool is_masked = std::count(drawn.masked.begin(), drawn.masked.end(), row) > 0;
    const auto add = [&](int64_t id, int64_t label) {
      sample.ids.push_back(static_cast<int32_t>(id));
      sample.labels.push_back(static_cast<int32_t>(label));
    };
    for (int64_t t = 0; t < prompts.size(1); ++t) {
      if (prompt_mask[row][t].item<int64_t>()) add(prompts[row][t].item<int64_t>(), kIgnoreLabel);
    }
    const size_t begin = sample.ids.size();
    for (int64_t t = 0; t < answers.size(1); ++t) {
      if (!mask[row][t].item<int64_t>()) continue;
      const auto id = answers[row][t].item<int64_t>();
      add(id, is_masked ? kIgnoreLabel : id);
    }
    std::vector<float> zeros(sample.ids.size(), 0.0F);
    std::vector<float> of_advantage(sample.ids.size(), advantages[row].item<float>()),
        of_old = zeros, of_reference = zeros;
    for (size_t t = begin; t < sample.ids.size(); ++t) {
      const auto column = static_cast<int64_t>(t - begin);
      of_old[t - 1] = old[row][column].item<float>();
      of_reference[t - 1] = reference[row][column].item<float>();
    }
    sample.token_columns[kAdvantageColumn] = of_advantage;
    if (drawn.has_old) sample.token_columns[kOldColumn] = of_old;
    if (drawn.has_reference) sample.token_columns[kReferenceColumn] = of_reference;
    samples.push_back(sample);
  }
  return samples;
}

struct Variant {
  const char* name;
  PolicyLoss loss;
  Drawn drawn = {};
  bool has_gradients = true;
};

std::vector<Variant> variants() {
  const auto loss = [](LossMean mean, double kl, double high,
                       RatioLevel ratio = RatioLevel::kToken) {
    PolicyLoss result;
    result.mean = mean;
    result.kl = kl;
    result.clip_high = high;
    result.ratio = ratio;
    result.longest = 16;
    return result;
  };
  return {{"grpo_token", loss(LossMean::kRows, 0.04, 0.2)},
          {"grpo_sequence", loss(LossMean::kRows, 0.04, 0.28, RatioLevel::kSequence)},
          {"bnpo", loss(LossMean::kTokens, 0.04, 0.2)},
          {"dr_grpo", loss(LossMean::kConstant, 0, 0.2)},
          {"dapo", loss(LossMean::kTokens, 0, 0.28)},
          {"dapo_mask_truncated", loss(LossMean::kTokens, 0, 0.28), {.masked = {2, 5}}},
          {"grpo_on_policy", loss(LossMean::kRows, 0.04, 0.2), {.has_old = false}}};
}

class GoldenPolicy : public testing::TestWithParam<Variant> {};

TEST_P(GoldenPolicy, LossGradientsAndMetrics) {
  DANLU_REQUIRES_SHARED();
  const Variant& variant = GetParam();
  const auto golden = weights::open_safetensors(golden_dir() / "grpo/golden.safetensors");
  const Json told = Json::parse(read_file(golden_dir() / "grpo/grpo.json"));
  const auto policy = model("policy", at::kFloat);
  for (const auto& parameter : policy->parameters()) parameter.tensor.set_requires_grad(true);
  const auto objective = policy_objective(variant.loss);
  const auto all = samples(*golden, variant.drawn);
  // Two micro-batches, whose sums are divided once.
  double sum = 0, weight = 0;
  std::map<std::string, std::pair<double, double>> metrics;
  const std::vector<std::vector<data::Sample>> parts = {{all.begin(), all.begin() + 3},
                                                        {all.begin() + 3, all.end()}};
  std::vector<data::Batch> batches;
  for (const auto& part : parts) {
    batches.push_back(data::make_batch(part));
    weight += objective->weight(batches.back());
  }
  for (const data::Batch& batch : batches) {
    const models::ForwardInput input = evaluation_input(*policy, batch);
    const Loss loss =
        objective->evaluate(*policy, policy->forward(input), input, batch, {}, 1 / weight);
    sum += loss.sum.item<double>();
    for (const auto& [name, metric] : loss.metrics) {
      metrics[name].first += metric.sum.item<double>();
      metrics[name].second += metric.weight.item<double>();
    }
    torch::autograd::backward({loss.sum}, {grad_of_sum(loss, 1 / weight)});
  }
  const std::string name = variant.name;
  EXPECT_NEAR(sum / weight, read_tensor(*golden, name + ".loss").item<float>(), 2e-5);
  const Json told_metrics = told["variants"][name].value("metrics", Json::object());
  for (const auto& [metric, expected] : told_metrics.items()) {
    if (metric.ends_with("_min") || metric.ends_with("_max")) continue;
    ASSERT_EQ(metrics.count(metric), 1u) << metric;
    EXPECT_NEAR(metrics[metric].first / metrics[metric].second, expected.get<double>(), 2e-5)
        << metric;
  }
  int64_t compared = 0;
  for (const auto& parameter : policy->parameters()) {
    const std::string of = name + ".grad." + parameter.name();
    if (!golden->find(of)) continue;
    const at::Tensor expected = read_tensor(*golden, of);
    const double difference = (parameter.tensor.grad() - expected).abs().max().item<double>();
    EXPECT_LT(difference, 2e-5 + 1e-4 * expected.abs().max().item<double>()) << parameter.name();
    ++compared;
  }
  EXPECT_GT(compared, 10) << "gradients of every parameter";
}

INSTANTIATE_TEST_SUITE_P(Grpo, GoldenPolicy, testing::ValuesIn(variants()),
                         [](const auto& info) { return std::string(info.param.name); });

/// Numbers of PyTorch 1.13 in f64, from the papers' formulas.
/// The loss of a variant's samples, in one batch, after `change`; and whether gradients are all 0.
std::pair<double, bool> loss_of(const PolicyLoss& settings, const Drawn& drawn,
                                const std::function<void(data::Sample&)>& change) {
  const auto golden = weights::open_safetensors(golden_dir() / "grpo/golden.safetensors");
  const auto policy = model("policy", at::kFloat);
  for (const auto& parameter : policy->parameters()) parameter.tensor.set_requires_grad(true);
  const auto objective = policy_objective(settings);
  std::vector<data::Sample> all = samples(*golden, drawn);
  for (data::Sample& sample : all) change(sample);
  const data::Batch batch = data::make_batch(all);
  const double weight = objective->weight(batch);
  const models::ForwardInput input = evaluation_input(*policy, batch);
  const Loss loss =
      objective->evaluate(*policy, policy->forward(input), input, batch, {}, 1 / weight);
  torch::autograd::backward({loss.sum}, {grad_of_sum(loss, 1 / weight)});
  bool is_still = true;
  for (const auto& parameter : policy->parameters())
    is_still = is_still && parameter.tensor.grad().abs().max().item<double>() == 0;
  return {loss.sum.item<double>() / weight, is_still};
}

TEST(PolicyColumns, ADistanceThatDoesNotCountTeachesNothing) {
  DANLU_REQUIRES_SHARED();
  PolicyLoss settings;
  settings.kl = 0.04;
  const auto worthless = [](data::Sample& sample) {
    sample.token_columns[kAdvantageColumn].assign(sample.ids.size(), 0.0F);
  };
  const auto with_distance = loss_of(settings, {}, worthless);
  EXPECT_GT(with_distance.first, 1e-5);
  EXPECT_FALSE(with_distance.second);
  const auto without = loss_of(settings, {}, [&](data::Sample& sample) {
    worthless(sample);
    sample.token_columns[kDistanceColumn].assign(sample.ids.size(), 0.0F);
  });
  EXPECT_EQ(without.first, 0);
  EXPECT_TRUE(without.second);
}

// ms-swift counts the tokens of all answers, TRL those that are left: its golden loss times the
// quotient.
TEST(PolicyColumns, TokensThatCountWithoutBeingTargets) {
  DANLU_REQUIRES_SHARED();
  const auto golden = weights::open_safetensors(golden_dir() / "grpo/golden.safetensors");
  const at::Tensor mask = read_tensor(*golden, "completion_mask").to(at::kDouble);
  const double all = mask.sum().item<double>(),
               cut = mask[2].sum().item<double>() + mask[5].sum().item<double>();
  PolicyLoss settings;
  settings.mean = LossMean::kTokens;
  settings.clip_high = 0.28;
  const auto whole = samples(*golden, {});
  size_t row = 0;
  const auto found = loss_of(settings, {.masked = {2, 5}}, [&](data::Sample& sample) {
    std::vector<float>& count = sample.token_columns[kCountColumn];
    for (const int32_t label : whole[row].labels)
      count.push_back(label == static_cast<int32_t>(kIgnoreLabel) ? 0.0F : 1.0F);
    ++row;
  });
  const double of_trl = read_tensor(*golden, "dapo_mask_truncated.loss").item<float>();
  EXPECT_NEAR(found.first, of_trl * (all - cut) / all, 2e-5);
  EXPECT_GT(std::fabs(of_trl * cut / all), 1e-4) << "the two differ";
}

TEST(PolicyGate, LossesAndGradientsAreThoseOfThePapers) {
  const at::TensorOptions options(at::kDouble);
  const at::Tensor old = at::tensor({-1.0, -0.5, -2.0, -0.1, -3.0, -1.2}, options),
                   moved = at::tensor({0.0, 0.3, -0.4, 2.1, -1.5, 0.05}, options),
                   advantages = at::tensor({1.0, -0.5, 0.8, 1.5, -2.0, 0.0}, options);
  struct Expected {
    settings::RatioGate gate;
    std::vector<double> losses, gradients;
  };
  for (const Expected& of :
       {Expected{settings::RatioGate::kSoft,
                 {-2.0, 1.125369358, -1.338619191, -5.995369926, 2.336566533, 0.0},
                 {-1.0, 0.652661931, -0.521944719, -0.037780794, 0.379544752, 0.0}},
        Expected{settings::RatioGate::kWeight,
                 {1.0, -0.134985881, 1.287014488, -15.0, -2.008171441, 0.0},
                 {-1.0, 0.674929404, -0.536256037, -7.5, 0.44626032, 0.0}}}) {
    PolicyLoss settings;
    settings.gate = of.gate;
    settings.clip_high = 5;
    const at::Tensor logprobs = (old + moved).requires_grad_(true);
    const at::Tensor losses = gated_losses(settings, (logprobs - old).exp(), logprobs, advantages);
    torch::autograd::backward({losses.sum()});
    for (int64_t i = 0; i < 6; ++i) {
      const auto at = static_cast<size_t>(i);
      EXPECT_NEAR(losses[i].item<double>(), of.losses[at], 1e-8) << i;
      EXPECT_NEAR(logprobs.grad()[i].item<double>(), of.gradients[at], 1e-8) << i;
    }
  }
}

TEST(PolicyCurve, FiveUpdatesOnTheSameAnswersEqualTrl) {
  DANLU_REQUIRES_SHARED();
  const auto golden = weights::open_safetensors(golden_dir() / "grpo/golden.safetensors");
  const Json told = Json::parse(read_file(golden_dir() / "grpo/grpo.json")).at("train");
  auto policy = model("policy", at::kFloat);
  std::vector<data::Sample> all = samples(*golden, {});
  {  // The old log-probabilities are those of the policy that the curve begins with.
    const at::NoGradGuard no_grad;
    for (data::Sample& sample : all) {
      const data::Batch batch = data::make_batch({sample});
      const models::ForwardInput input = evaluation_input(*policy, batch);
      const at::Tensor hidden = policy->forward(input);
      for (size_t t = 0; t + 1 < sample.ids.size(); ++t) {
        const auto found =
            policy->token_logprobs(hidden, input, at::full({1}, static_cast<int64_t>(t), at::kLong),
                                   at::full({1}, sample.ids[t + 1], at::kLong));
        sample.token_columns[kOldColumn][t] = found.logprobs_M.item<float>();
      }
    }
  }
  const auto source = std::make_shared<data::VectorSource>(all);
  TrainConfig config = test::golden_recipe(told.at("lr"));
  config.adamw.groups.weight_decay = 0;
  TrainState state = test::make_state(std::move(policy), config);
  PolicyLoss loss;
  loss.kl = 0.04;
  state.objective = policy_objective(loss);
  for (size_t step = 0; step < told.at("losses").size(); ++step) {
    const StepResult result =
        run_step(state, test::step_of(source, 3, 3, 0), config, config.schedule.shape);
    EXPECT_NEAR(result.loss, told.at("losses")[step].get<double>(), 1e-4) << step;
    EXPECT_NEAR(result.grad_norm, told.at("grad_norms")[step].get<double>(),
                1e-3 * result.grad_norm)
        << step;
    for (const auto& [name, value] : told.at("metrics")[step].items())
      EXPECT_NEAR(result.metrics.at(name), value.get<double>(), 1e-4) << step << ' ' << name;
  }
}

std::vector<double> doubles(const weights::TensorSource& golden, const std::string& name) {
  const at::Tensor values = read_tensor(golden, name).flatten();
  std::vector<double> result;
  for (int64_t i = 0; i < values.numel(); ++i) result.push_back(values[i].item<float>());
  return result;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-5) << i;
}

TEST(Advantages, OfGroupsAreThoseOfTrl) {
  DANLU_REQUIRES_SHARED();
  const auto golden = weights::open_safetensors(golden_dir() / "advantages/golden.safetensors");
  const std::vector<double> rewards = doubles(*golden, "group.rewards"),
                            each = doubles(*golden, "group.rewards_per_func"),
                            weights = doubles(*golden, "group.reward_weights");
  std::vector<std::vector<std::optional<double>>> scores(2);
  for (size_t i = 0; i < each.size(); ++i) scores[i % 2].emplace_back(each[i]);
  const RewardGroups groups{weighted_rewards(scores, weights), 4};
  for (size_t i = 0; i < rewards.size(); ++i) EXPECT_NEAR(*groups.rewards[i], rewards[i], 1e-6);
  const std::vector<int64_t> tokens(8, 1);
  const auto of = [&](Advantage kind, RewardScale scale) {
    return advantages(groups, tokens, kind, scale);
  };
  expect_near(of(Advantage::kGroup, RewardScale::kGroup), doubles(*golden, "group.trl_group"));
  expect_near(of(Advantage::kGroup, RewardScale::kBatch), doubles(*golden, "group.trl_batch"));
  expect_near(of(Advantage::kGroup, RewardScale::kNone), doubles(*golden, "group.dr_grpo"));
  expect_near(of(Advantage::kLeaveOut, RewardScale::kNone), doubles(*golden, "group.rloo"));
}

TEST(Advantages, WhitenedOnesAreThoseOfVerl) {
  DANLU_REQUIRES_SHARED();
  const auto golden = weights::open_safetensors(golden_dir() / "advantages/golden.safetensors");
  const at::Tensor mask = read_tensor(*golden, "reinforce_pp_baseline.mask"),
                   expected = read_tensor(*golden, "reinforce_pp_baseline.advantages");
  RewardGroups groups{{}, 4};
  for (const double reward : doubles(*golden, "group.rewards")) groups.rewards.emplace_back(reward);
  std::vector<int64_t> tokens;
  for (int64_t i = 0; i < mask.size(0); ++i) tokens.push_back(mask[i].sum().item<int64_t>());
  const auto got = advantages(groups, tokens, Advantage::kBaselined, RewardScale::kNone);
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], expected[static_cast<int64_t>(i)][0].item<float>(), 1e-5);
}

TEST(Advantages, OfTokensAreThoseOfVerl) {
  DANLU_REQUIRES_SHARED();
  const auto golden = weights::open_safetensors(golden_dir() / "advantages/golden.safetensors");
  const Json told = Json::parse(read_file(golden_dir() / "advantages/advantages.json"));
  const at::Tensor rewards = read_tensor(*golden, "gae.rewards"),
                   values = read_tensor(*golden, "gae.values"),
                   mask = read_tensor(*golden, "gae.mask");
  const auto row_of = [&](const at::Tensor& table, int64_t row) {
    std::vector<double> result;
    for (int64_t t = 0; t < mask[row].sum().item<int64_t>(); ++t)
      result.push_back(table[row][t].item<float>());
    return result;
  };
  for (const std::string name : {"gae.0", "gae.1", "gae.2"}) {
    SCOPED_TRACE(name);
    const at::Tensor raw = read_tensor(*golden, name + ".advantages_raw"),
                     white = read_tensor(*golden, name + ".advantages_whitened"),
                     returns = read_tensor(*golden, name + ".returns");
    std::vector<double> all, expected;
    for (int64_t row = 0; row < mask.size(0); ++row) {
      const Estimate estimate =
          generalised_advantages(row_of(rewards, row), row_of(values, row),
                                 told.at(name).at("gamma"), told.at(name).at("lam"));
      expect_near(estimate.advantages, row_of(raw, row));
      expect_near(estimate.returns, row_of(returns, row));
      all.insert(all.end(), estimate.advantages.begin(), estimate.advantages.end());
      const auto white_row = row_of(white, row);
      expected.insert(expected.end(), white_row.begin(), white_row.end());
    }
    expect_near(whitened(all), expected);
  }
  std::vector<double> all, expected;
  const at::Tensor white = read_tensor(*golden, "reinforce_pp.advantages");
  for (int64_t row = 0; row < mask.size(0); ++row) {
    const auto returns = discounted_returns(row_of(rewards, row), 1), of = row_of(white, row);
    all.insert(all.end(), returns.begin(), returns.end());
    expected.insert(expected.end(), of.begin(), of.end());
  }
  expect_near(whitened(all), expected);
}

TEST(Advantages, AnswersThatNobodyJudgedAreWorthNothing) {
  const RewardGroups groups{
      {1.0, std::nullopt, 3.0, std::nullopt, std::nullopt, std::nullopt, 5.0, 5.0, 5.0}, 3};
  const std::vector<int64_t> tokens(9, 2);
  for (const auto kind : {Advantage::kGroup, Advantage::kLeaveOut, Advantage::kBaselined}) {
    const auto got = advantages(groups, tokens, kind, RewardScale::kGroup);
    for (const size_t unjudged : {1, 3, 4, 5}) EXPECT_EQ(got[unjudged], 0);
    EXPECT_LT(got[0], 0);
    EXPECT_GT(got[2], 0);
    for (const size_t equal : {6, 7, 8}) EXPECT_EQ(got[equal], 0);
  }
  const RewardSpread spread = spread_of(groups);
  EXPECT_EQ(spread.unjudged, 4);
  EXPECT_NEAR(spread.mean, 19.0 / 5, 1e-12);
  settings::Reinforcement told;
  told.answers = 3;
  EXPECT_EQ(groups_that_differ({groups.rewards}, told), (std::vector<bool>{true, false, false}));
}

// A sum of them over their number is another number than they are.
TEST(Advantages, EqualScoresAreWorthNothingToTheBit) {
  using Scores = std::vector<std::optional<double>>;
  const Scores eight(8, 0.1), nine = {0.1, 0.1, 0.1, 0.7, 0.7, 0.7, 1.0, 1.0, 1.0};
  for (const auto& [scores, size] : {std::pair(eight, 8), std::pair(nine, 3)}) {
    const RewardGroups groups{scores, size};
    const std::vector<int64_t> tokens(scores.size(), 2);
    const std::vector<double> none(scores.size());
    for (const auto scale : {RewardScale::kGroup, RewardScale::kBatch, RewardScale::kNone})
      EXPECT_EQ(advantages(groups, tokens, Advantage::kGroup, scale), none);
    EXPECT_EQ(advantages(groups, tokens, Advantage::kLeaveOut, RewardScale::kGroup), none);
    EXPECT_EQ(advantages(groups, tokens, Advantage::kBaselined, RewardScale::kGroup), none);
    EXPECT_EQ(advantages_by_rule({scores}, {}, size), none);
    EXPECT_EQ(advantages_by_rule({scores, scores}, {}, size), none);
    EXPECT_EQ(spread_of(groups).deviation, 0);
    settings::Reinforcement told;
    told.answers = size;
    for (const auto scale : {RewardScale::kGroup, RewardScale::kEachRule}) {
      told.scale = scale;
      EXPECT_EQ(groups_that_differ({scores}, told), std::vector<bool>(scores.size() / size));
    }
  }
  EXPECT_EQ(advantages({eight, 8}, std::vector<int64_t>(8, 2), Advantage::kWhitened, {}),
            std::vector<double>(8));
}

// By ms-swift's compute_advantages: REINFORCE++ divides by the deviation of centred rewards, RLOO
// by that of rewards.
TEST(Advantages, DeviationsOfReinforcePlusPlusAndRloo) {
  const RewardGroups groups{{0.0, 1.0, 10.0, 12.0}, 2};
  const std::vector<int64_t> tokens = {5, 1, 9, 2};
  const auto of = [&](Advantage kind, RewardScale scale) {
    return advantages(groups, tokens, kind, scale);
  };
  const std::vector<double> centred = {-0.5, 0.5, -1, 1}, left_out = {-1, 1, -2, 2};
  const auto over = [](const std::vector<double>& values, const std::vector<double>& deviations) {
    std::vector<double> result;
    for (size_t i = 0; i < values.size(); ++i) result.push_back(values[i] / (deviations[i] + 1e-4));
    return result;
  };
  const double of_centred = std::sqrt(2.5 / 3), first = std::sqrt(0.5), second = std::sqrt(2.0);
  const double of_rewards = std::sqrt((5.75 * 5.75 + 4.75 * 4.75 + 4.25 * 4.25 + 6.25 * 6.25) / 3);
  expect_near(of(Advantage::kCentred, RewardScale::kBatch),
              over(centred, std::vector<double>(4, of_centred)));
  expect_near(of(Advantage::kCentred, RewardScale::kGroup),
              over(centred, {first, first, second, second}));
  expect_near(of(Advantage::kCentred, RewardScale::kNone), centred);
  expect_near(of(Advantage::kLeaveOut, RewardScale::kBatch),
              over(left_out, std::vector<double>(4, of_rewards)));
  expect_near(of(Advantage::kLeaveOut, RewardScale::kGroup),
              over(left_out, {first, first, second, second}));
  const RewardGroups some{{0.0, 1.0, std::nullopt, 12.0}, 2};
  EXPECT_EQ(advantages(some, tokens, Advantage::kCentred, RewardScale::kBatch)[2], 0);
}

TEST(Advantages, WhereRulesAreComparedByThemselvesAGroupDiffersInAnyOfThem) {
  settings::Reinforcement told;
  told.answers = 2;
  // The first group's sums are equal, and no rule's scores; the second's are equal in each rule.
  const std::vector<std::vector<std::optional<double>>> scores = {{1.0, 0.0, 0.5, 0.5},
                                                                  {0.0, 1.0, 0.2, 0.2}};
  EXPECT_EQ(groups_that_differ(scores, told), (std::vector<bool>{false, false}));
  told.scale = RewardScale::kEachRule;
  EXPECT_EQ(groups_that_differ(scores, told), (std::vector<bool>{true, false}));
  told.reward_weights = {0, 1};
  EXPECT_EQ(groups_that_differ(scores, told), (std::vector<bool>{true, false}));
  EXPECT_EQ(groups_that_differ({scores[1], {0.3, 0.3, 0.1, 0.2}}, told),
            (std::vector<bool>{false, true}))
      << "a rule without a weight says nothing";
}

}  // namespace policy_golden_test
}  // namespace danlu::train
