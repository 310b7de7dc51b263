// Routers against loops in f64 over random shapes, and their gradients against differences.
#include "ops/routing.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "base/error.h"
#include "finite_differences.h"

namespace danlu::ops {
namespace {

using test::random_f64;

/// What a token's row says, found by looking at every expert for every pick.
struct PlainChoice {
  std::vector<int64_t> experts;
  std::vector<double> weights;
};
PlainChoice plain_choice(const at::Tensor& logits_E, const at::Tensor& bias_E,
                         const RoutingRule& rule) {
  const int64_t experts = logits_E.size(0), size = experts / rule.groups;
  std::vector<double> scores, choice;
  double sum = 0;
  for (int64_t e = 0; e < experts; ++e) sum += std::exp(logits_E[e].item<double>());
  for (int64_t e = 0; e < experts; ++e) {
    const double logit = logits_E[e].item<double>();
    scores.push_back(rule.score == RouterScore::kSigmoid ? 1 / (1 + std::exp(-logit))
                                                         : std::exp(logit) / sum);
    choice.push_back(scores.back() + (bias_E.defined() ? bias_E[e].item<double>() : 0));
  }
  std::vector<double> worth;
  for (int64_t g = 0; g < rule.groups; ++g) {
    std::vector<double> own(choice.begin() + g * size, choice.begin() + (g + 1) * size);
    std::sort(own.rbegin(), own.rend());
    worth.push_back(own[0] + (rule.sums_two_of_group && size > 1 ? own[1] : 0));
  }
  std::set<int64_t> open;
  while (static_cast<int64_t>(open.size()) < rule.chosen_groups) {
    int64_t best = -1;
    for (int64_t g = 0; g < rule.groups; ++g) {
      if (!open.count(g) && (best < 0 || worth[g] > worth[best])) best = g;
    }
    open.insert(best);
  }
  PlainChoice result;
  double total = rule.norm_add;
  for (int64_t pick = 0; pick < rule.per_token; ++pick) {
    int64_t best = -1;
    for (int64_t e = 0; e < experts; ++e) {
      const bool taken =
          std::count(result.experts.begin(), result.experts.end(), e) > 0 || !open.count(e / size);
      if (!taken && (best < 0 || choice[e] > choice[best])) best = e;
    }
    result.experts.push_back(best);
    result.weights.push_back(scores[best]);
    total += scores[best];
  }
  for (double& weight : result.weights) weight *= rule.weight_scale / (rule.norm ? total : 1.0);
  return result;
}

RoutingRule random_rule(std::mt19937& random, int64_t& experts) {
  RoutingRule rule;
  rule.groups = std::vector<int64_t>{1, 1, 2, 4}[random() % 4];
  experts = rule.groups * static_cast<int64_t>(2 + random() % 5);
  rule.chosen_groups = 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(rule.groups));
  const int64_t open = experts / rule.groups * rule.chosen_groups;
  rule.per_token = 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(open));
  rule.score = random() % 2 ? RouterScore::kSigmoid : RouterScore::kSoftmax;
  rule.sums_two_of_group = random() % 2;
  rule.norm = random() % 2;
  rule.norm_add = rule.score == RouterScore::kSigmoid ? 1e-20 : 0;
  rule.weight_scale = random() % 2 ? 2.5 : 1.0;
  return rule;
}

TEST(Routing, EqualsALoopOverExperts) {
  std::mt19937 random(5);
  for (int round = 0; round < 60; ++round) {
    int64_t experts = 0;
    const RoutingRule rule = random_rule(random, experts);
    const int64_t tokens = 1 + static_cast<int64_t>(random() % 150);
    at::Tensor logits = random_f64({tokens, experts}, random());
    if (round % 3 == 0) logits = (logits * 2).round();  // ties
    const at::Tensor bias = random() % 2 ? random_f64({experts}, random()) * 0.3 : at::Tensor();
    const Routing got = route(logits, bias, rule);
    for (int64_t n = 0; n < tokens; ++n) {
      const PlainChoice expected = plain_choice(logits[n], bias, rule);
      for (int64_t k = 0; k < rule.per_token; ++k) {
        ASSERT_EQ(got.experts_NK[n][k].item<int64_t>(), expected.experts[static_cast<size_t>(k)])
            << "round " << round << " token " << n << " pick " << k;
        EXPECT_NEAR(got.weights_NK[n][k].item<double>(), expected.weights[static_cast<size_t>(k)],
                    1e-12);
      }
    }
  }
}

TEST(Routing, EqualScoresGoToTheFirstExperts) {
  const Routing got = route(at::full({3, 6}, 0.25, at::kFloat), {}, {.per_token = 3, .norm = true});
  for (int64_t n = 0; n < 3; ++n) {
    for (int64_t k = 0; k < 3; ++k) {
      EXPECT_EQ(got.experts_NK[n][k].item<int64_t>(), k);
      EXPECT_FLOAT_EQ(got.weights_NK[n][k].item<float>(), 1.0f / 3);
    }
  }
}

TEST(Routing, GradientsOfWeightsAreTheirDifferences) {
  std::mt19937 random(9);
  for (int round = 0; round < 12; ++round) {
    int64_t experts = 0;
    const RoutingRule rule = random_rule(random, experts);
    test::expect_gradients(
        [&](const std::vector<at::Tensor>& in) { return route(in[0], {}, rule).weights_NK; },
        {random_f64({7, experts}, random())});
  }
}

TEST(Routing, SparsemixerWeighsEachPickAmongLogitsNearIt) {
  RoutingRule rule{.score = RouterScore::kSparseMixer, .per_token = 2, .jitter = 0.01};
  const at::Tensor logits = random_f64({40, 6}, 3);
  const Routing got = route(logits, {}, rule);
  for (int64_t n = 0; n < 40; ++n) {
    double largest = -1e9, second = -1e9;
    for (int64_t e = 0; e < 6; ++e) {
      const double logit = logits[n][e].item<double>();
      if (logit > largest) {
        second = std::exchange(largest, logit);
      } else {
        second = std::max(second, logit);
      }
    }
    for (int64_t k = 0; k < 2; ++k) {
      const double best = k == 0 ? largest : second;
      double sum = 0;
      for (int64_t e = 0; e < 6; ++e) {
        const double logit = logits[n][e].item<double>();
        const bool taken = k == 1 && logit == largest;
        if (!taken && (best - logit) / std::max(std::abs(logit), best) <= 0.02)
          sum += std::exp(logit - best);
      }
      const int64_t chosen = got.experts_NK[n][k].item<int64_t>();
      EXPECT_EQ(logits[n][chosen].item<double>(), best);
      EXPECT_NEAR(got.weights_NK[n][k].item<double>(), 1 / sum, 1e-12);
    }
  }
}

TEST(Routing, TermsOfTheLossAreTheirFormulasAndHaveTheirGradients) {
  BalanceTerm term;
  term.parts = {{0, 3, 0}, {3, 4, 1}, {4, 9, 0}};  // a segment in two parts
  term.lengths = {8, 2};                           // one token of the second is another rank's
  term.factors = {0.7, 1.9};
  const auto load = std::make_shared<ExpertLoad>();
  load->parts_SE = random_f64({2, 5}, 4).abs();
  term.load = load;
  const at::Tensor logits = random_f64({11, 5}, 6);  // two tokens are in no segment
  for (const RouterScore score : {RouterScore::kSoftmax, RouterScore::kSigmoid}) {
    term.score = score;
    double expected = 0, squares = 0;
    for (const SegmentPart& part : term.parts) {
      const auto s = static_cast<size_t>(part.segment);
      for (int64_t n = part.begin; n < part.end; ++n) {
        const at::Tensor row =
            score == RouterScore::kSigmoid ? logits[n].sigmoid() : logits[n].softmax(0);
        const double value = (row / row.sum() * load->parts_SE[part.segment]).sum().item<double>();
        const double lse = std::log(logits[n].exp().sum().item<double>());
        expected += term.factors[s] * value / static_cast<double>(term.lengths[s]);
        squares += term.factors[s] * lse * lse / static_cast<double>(term.lengths[s]);
      }
    }
    EXPECT_NEAR(balance_term(logits, term).item<double>(), expected, 1e-12);
    EXPECT_NEAR(z_term(logits, term).item<double>(), squares, 1e-12);
    test::expect_gradients(
        [&](const std::vector<at::Tensor>& in) { return balance_term(in[0], term); }, {logits});
    test::expect_gradients([&](const std::vector<at::Tensor>& in) { return z_term(in[0], term); },
                           {logits});
  }
}

TEST(Routing, WhatCannotBeChosenIsRefused) {
  const at::Tensor logits = at::zeros({2, 6}, at::kFloat);
  EXPECT_THROW(route(logits, {}, {.per_token = 7}), ModelError);
  EXPECT_THROW(route(logits, {}, {.per_token = 3, .groups = 3, .chosen_groups = 1}), ModelError);
  EXPECT_THROW(route(logits, {}, {.per_token = 1, .groups = 4}), ModelError);
  EXPECT_THROW(route(logits, at::zeros({5}), {.per_token = 1}), ModelError);
  EXPECT_THROW(route(logits.to(at::kBFloat16), {}, {.per_token = 1}), ModelError);
}

}  // namespace
}  // namespace danlu::ops
