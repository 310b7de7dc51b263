// Cross entropy times the token's probability (DFT), times the entropy at its place (EAFT), beside
// the divergence from another model (ASFT): through all logits, and on meshes.
#include "train/objectives/weighted_tokens.h"

#include <ATen/ops/log_softmax.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "train/batch_input.h"
#include "train/mesh.h"

namespace danlu::train {
namespace mesh_test {
namespace {

Case weighted_case(Tuning tuning) {
  Case c{"dft", "qwen2", Json::object(), tuning};
  c.objective = weighted_tokens();
  return c;
}

/// The case's model where no training holds its weights.
std::unique_ptr<models::CausalLM> free_model(const Case& c) {
  auto model = stage_of(c, Mesh::single());
  randomise(*model, c.first_values);
  return model;
}

TEST(WeightedTokens, AreMinusPLogPOfAllLogits) {
  const Case c = weighted_case(Tuning::kFull);
  TrainState state = state_of(c, Mesh::single());
  const auto model = free_model(c);
  const data::StepBatches step = batches_of(Mesh::single(), 0);
  double sum = 0, targets = 0;
  {
    const at::NoGradGuard no_grad;
    for (const data::Batch& batch : step.micro_batches) {
      const models::ForwardInput input = evaluation_input(*model, batch);
      const at::Tensor logprobs =
          at::log_softmax(model->logits(model->forward_hidden(input)).to(at::kDouble), 1);
      for (size_t i = 0; i < batch.targets.size(); ++i) {
        if (batch.targets[i] < 0) continue;
        const double logprob = logprobs[static_cast<int64_t>(i)][batch.targets[i]].item<double>();
        sum -= std::exp(logprob) * logprob;
        ++targets;
      }
    }
  }
  const TrainConfig config = config_of(c);
  const StepResult got = run_step(state, step, config, config.schedule.shape);
  EXPECT_NEAR(got.loss, sum / targets, 1e-5 * got.loss);
}

// Its gradient is p times that of −log p: the difference of the loss with p held as it was.
TEST(WeightedTokens, HaveNoGradientThroughTheProbability) {
  const Case c = weighted_case(Tuning::kFull);
  const auto sum_at = [&](double moved, const at::Tensor& weights) {
    const auto model = free_model(c);
    {
      const at::NoGradGuard changes;
      for (const parallel::Parameter& p : model->parameters())
        if (p.name() == "model.norm.weight") at::Tensor(p.tensor).mul_(1 + moved);
    }
    const at::NoGradGuard no_grad;
    const data::StepBatches step = batches_of(Mesh::single(), 0);
    std::vector<double> logprobs;
    for (const data::Batch& batch : step.micro_batches) {
      const models::ForwardInput input = evaluation_input(*model, batch);
      const at::Tensor all =
          at::log_softmax(model->logits(model->forward_hidden(input)).to(at::kDouble), 1);
      for (size_t i = 0; i < batch.targets.size(); ++i) {
        if (batch.targets[i] >= 0)
          logprobs.push_back(all[static_cast<int64_t>(i)][batch.targets[i]].item<double>());
      }
    }
    const at::Tensor found = at::tensor(logprobs, at::TensorOptions(at::kDouble));
    return std::pair{found, weights.defined() ? (weights * found).mean().item<double>() : 0.0};
  };
  const at::Tensor held = sum_at(0, {}).first.exp();
  constexpr double kStep = 1e-2;
  const double wanted = -(sum_at(kStep, held).second - sum_at(-kStep, held).second) / (2 * kStep);
  const Outcome one = train(c, {}, 1);
  const auto model = free_model(c);
  for (const parallel::Parameter& p : model->parameters()) {
    if (p.name() != "model.norm.weight") continue;
    const double got = (one.gradients.at(p.name()) * p.tensor).sum().item<double>();
    EXPECT_NEAR(got, wanted, 5e-3 * std::abs(wanted));
  }
}

/// In f64, one number at a time: log-probabilities of a row of logits.
std::vector<double> plain_logprobs(const at::Tensor& logits_V) {
  std::vector<double> row;
  for (int64_t v = 0; v < logits_V.size(0); ++v) row.push_back(logits_V[v].item<double>());
  const double largest = *std::max_element(row.begin(), row.end());
  double total = 0;
  for (const double logit : row) total += std::exp(logit - largest);
  for (double& logit : row) logit -= largest + std::log(total);
  return row;
}

/// visit(logits of `models` at a target's place, the target) over a step.
template <typename Visit>
void each_target(const std::vector<const models::CausalLM*>& models, const Visit& visit) {
  const at::NoGradGuard no_grad;
  for (const data::Batch& batch : batches_of(Mesh::single(), 0).micro_batches) {
    const models::ForwardInput input = evaluation_input(*models.front(), batch);
    std::vector<at::Tensor> logits;
    for (const models::CausalLM* model : models)
      logits.push_back(model->logits(model->forward_hidden(input)).to(at::kDouble));
    for (size_t i = 0; i < batch.targets.size(); ++i) {
      if (batch.targets[i] < 0) continue;
      std::vector<std::vector<double>> rows;
      for (const at::Tensor& of : logits)
        rows.push_back(plain_logprobs(of[static_cast<int64_t>(i)]));
      visit(rows, static_cast<size_t>(batch.targets[i]));
    }
  }
}

Case entropy_case(Tuning tuning, double power) {
  Case c{"eaft", "qwen2", Json::object(), tuning};
  c.objective = entropy_weighted_tokens(power);
  return c;
}

TEST(EntropyWeightedTokens, CountByTheTwentyLikeliest) {
  const Case c = entropy_case(Tuning::kFull, 1.5);
  TrainState state = state_of(c, Mesh::single());
  const auto model = free_model(c);
  double sum = 0, entropies = 0, targets = 0;
  each_target({model.get()}, [&](const std::vector<std::vector<double>>& rows, size_t target) {
    std::vector<double> best = rows[0];
    std::sort(best.rbegin(), best.rend());
    ASSERT_GT(best.size(), 20u);
    best.resize(20);
    double total = 0, entropy = 0;
    for (const double logprob : best) total += std::exp(logprob);
    for (const double logprob : best) {
      const double p = std::exp(logprob) / total;
      entropy -= p * std::log(p);
    }
    sum -= std::pow(entropy / 3, 1.5) * rows[0][target];
    entropies += entropy;
    ++targets;
  });
  const TrainConfig config = config_of(c);
  const StepResult got =
      run_step(state, batches_of(Mesh::single(), 0), config, config.schedule.shape);
  EXPECT_NEAR(got.loss, sum / targets, 1e-5 * got.loss);
  EXPECT_NEAR(got.metrics.at("entropy"), entropies / targets, 1e-5 * entropies / targets);
}

Case anchored_case(Tuning tuning) {
  Case c{"asft", "qwen2", Json::object(), tuning};
  c.objective_beside = [](const std::shared_ptr<const FrozenModel>& twin) {
    return anchored_tokens(0.3, twin);
  };
  return c;
}

TEST(AnchoredTokens, AreMinusPLogPAndTheDivergenceFromTheReference) {
  const Case c = anchored_case(Tuning::kFull);
  TrainState state = state_of(c, Mesh::single());
  const auto model = free_model(c), other = free_model(c);
  {
    const at::NoGradGuard changes;
    for (const parallel::Parameter& p : other->parameters()) at::Tensor(p.tensor).mul_(0.75);
  }
  double sum = 0, divergence = 0, targets = 0;
  each_target({model.get(), other.get()},
              [&](const std::vector<std::vector<double>>& rows, size_t target) {
                sum -= std::exp(rows[0][target]) * rows[0][target];
                for (size_t v = 0; v < rows[0].size(); ++v)
                  divergence += std::exp(rows[1][v]) * (rows[1][v] - rows[0][v]);
                ++targets;
              });
  const TrainConfig config = config_of(c);
  const StepResult got =
      run_step(state, batches_of(Mesh::single(), 0), config, config.schedule.shape);
  EXPECT_NEAR(got.loss, (sum + 0.3 * divergence) / targets, 1e-5 * got.loss);
  EXPECT_NEAR(got.metrics.at("divergence"), divergence / targets, 1e-4 * divergence / targets);
}

TEST(WeightedTokens, BySureOfTheModelGiveTheNumbersOfOneProcessOnMeshes) {
  struct CountedPlace {
    const char* name;
    MeshShape shape;
    parallel::Sharding sharding = parallel::Sharding::kNone;
  };
  const CountedPlace list[] = {{"zero3", {.data = 2}, parallel::Sharding::kParameters},
                               {"tp2sp", {.tensor = 2, .sequence_parallel = true}},
                               {"pp2", {.pipeline = 2}},
                               {"cp2", {.context = {.ring = 2, .window = 2}}}};
  for (const Case& alone : {entropy_case(Tuning::kFull, 1), entropy_case(Tuning::kLora, 0.5),
                            anchored_case(Tuning::kFull)}) {
    const Outcome one = train(alone, {}, 3);
    for (const CountedPlace& place : list) {
      SCOPED_TRACE(alone.name + std::string(" ") + place.name);
      Case c = alone;
      c.sharding = place.sharding;
      const Outcome got = train(c, place.shape, 3);
      expect_numbers_of(one, got);
      for (size_t step = 0; step < one.metrics.size(); ++step) {
        for (const auto& [name, value] : one.metrics[step])
          EXPECT_NEAR(got.metrics[step].at(name), value, 2e-5 * std::max(1.0, std::fabs(value)))
              << name;
      }
    }
  }
}

TEST(WeightedTokens, GiveTheNumbersOfOneProcessOnMeshes) {
  struct WeightedPlace {
    const char* name;
    MeshShape shape;
    parallel::Sharding sharding = parallel::Sharding::kNone;
  };
  const WeightedPlace list[] = {{"zero3", {.data = 2}, parallel::Sharding::kParameters},
                                {"tp2sp", {.tensor = 2, .sequence_parallel = true}},
                                {"pp2", {.pipeline = 2}},
                                {"cp2", {.context = {.ring = 2, .window = 2}}}};
  for (const Tuning tuning : {Tuning::kFull, Tuning::kLora}) {
    const Case alone = weighted_case(tuning);
    const Outcome one = train(alone, {}, 4);
    for (const WeightedPlace& place : list) {
      SCOPED_TRACE(place.name);
      Case c = alone;
      c.sharding = place.sharding;
      const Outcome got = train(c, place.shape, 4);
      expect_numbers_of(one, got);
      for (size_t step = 0; step < one.metrics.size(); ++step)
        EXPECT_NEAR(got.metrics[step].at("token_acc"), one.metrics[step].at("token_acc"), 1e-6);
    }
  }
}

}  // namespace
}  // namespace mesh_test
}  // namespace danlu::train
