// Routers against double loops over random shapes, ties included, and slopes against differences.
#include "ops/routing.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <set>
#include <vector>

namespace danlu::ops {
namespace routing_test {

using Numbers = std::vector<double>;

/// The index of the largest number that is not taken; of equal ones the first.
int64_t best_of(const Numbers& numbers, const std::set<int64_t>& taken) {
  int64_t best = -1;
  for (int64_t i = 0; i < static_cast<int64_t>(numbers.size()); ++i) {
    if (taken.count(i)) continue;
    if (best < 0 || numbers[static_cast<size_t>(i)] > numbers[static_cast<size_t>(best)]) best = i;
  }
  return best;
}

Numbers scores_of(RouterScore score, const Numbers& logits) {
  Numbers scores;
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit);
  for (const double logit : logits) {
    scores.push_back(score == RouterScore::kSigmoid ? 1 / (1 + std::exp(-logit))
                                                    : std::exp(logit) / sum);
  }
  return scores;
}

/// The experts of a token with their weights, as the header says it.
std::vector<std::pair<int64_t, double>> choice_of(const Numbers& logits, const Numbers& bias,
                                                  const RoutingRule& rule) {
  const Numbers scores = scores_of(rule.score, logits);
  const auto experts = static_cast<int64_t>(logits.size()), size = experts / rule.groups;
  Numbers choice = scores;
  for (size_t e = 0; e < choice.size(); ++e) choice[e] += bias[e];
  Numbers worth;
  for (int64_t g = 0; g < rule.groups; ++g) {
    const Numbers own(choice.begin() + g * size, choice.begin() + (g + 1) * size);
    const int64_t first = best_of(own, {});
    worth.push_back(own[static_cast<size_t>(first)]);
    if (rule.sums_two_of_group && size > 1)
      worth.back() += own[static_cast<size_t>(best_of(own, {first}))];
  }
  std::set<int64_t> open_groups, taken;
  for (int64_t g = 0; g < rule.chosen_groups; ++g) open_groups.insert(best_of(worth, open_groups));
  for (int64_t e = 0; e < experts; ++e) {
    if (!open_groups.count(e / size)) taken.insert(e);
  }
  std::vector<std::pair<int64_t, double>> chosen;
  double sum = rule.norm_add;
  for (int64_t k = 0; k < rule.per_token; ++k) {
    const int64_t e = best_of(choice, taken);
    taken.insert(e);
    chosen.emplace_back(e, scores[static_cast<size_t>(e)]);
    sum += chosen.back().second;
  }
  for (auto& [e, weight] : chosen) weight = (rule.norm ? weight / sum : weight) * rule.weight_scale;
  return chosen;
}

Numbers row_of(const at::Tensor& x_NE, int64_t row) {
  const double* const begin = x_NE.data_ptr<double>() + row * x_NE.size(1);
  return {begin, begin + x_NE.size(1)};
}

/// Rules that fit `groups` groups of `size` experts.
std::vector<RoutingRule> rules_for(int64_t groups, int64_t size, std::mt19937_64& random) {
  std::vector<RoutingRule> rules;
  for (const RouterScore score : {RouterScore::kSoftmax, RouterScore::kSigmoid}) {
    for (const bool norm : {false, true}) {
      RoutingRule rule{.score = score, .groups = groups, .norm = norm, .norm_add = 1e-20};
      rule.chosen_groups = 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(groups));
      rule.per_token =
          1 + static_cast<int64_t>(random() % static_cast<uint64_t>(rule.chosen_groups * size));
      rule.sums_two_of_group = random() % 2 == 0 && size > 1;
      rule.weight_scale = norm ? 2.5 : 1.0;
      rules.push_back(rule);
    }
  }
  return rules;
}

TEST(Routing, ChoosesAsADoubleLoopDoesTiesIncluded) {
  std::mt19937_64 random(7);
  for (int64_t round = 0; round < 12; ++round) {
    const int64_t groups = 1 + static_cast<int64_t>(random() % 4),
                  size = 1 + static_cast<int64_t>(random() % 5), experts = groups * size;
    // Halves are the same numbers again and again.
    at::Tensor logits_NE = (at::randn({33, experts}, at::kDouble) * 2).round() / 2;
    if (round % 2 == 1) logits_NE = at::randn({33, experts}, at::kDouble);
    const at::Tensor bias_E = (at::randn({experts}) * 4).round() / 4;
    for (const RoutingRule& rule : rules_for(groups, size, random)) {
      const bool has_bias = rule.score == RouterScore::kSigmoid;
      const Routing got = route(logits_NE, has_bias ? bias_E : at::Tensor(), rule);
      const at::Tensor wide_E =
          has_bias ? bias_E.to(at::kDouble) : at::zeros({experts}, at::kDouble);
      const Numbers bias = row_of(wide_E.view({1, experts}), 0);
      for (int64_t n = 0; n < logits_NE.size(0); ++n) {
        const auto expected = choice_of(row_of(logits_NE, n), bias, rule);
        for (int64_t k = 0; k < rule.per_token; ++k) {
          const auto& [expert, weight] = expected[static_cast<size_t>(k)];
          ASSERT_EQ(got.experts_NK[n][k].item<int64_t>(), expert) << "pick " << k << " of " << n;
          ASSERT_NEAR(got.weights_NK[n][k].item<double>(), weight, 1e-12);
        }
      }
    }
  }
}

/// d value / d logits by central differences.
at::Tensor slopes_of(const at::Tensor& logits_NE,
                     const std::function<double(const at::Tensor&)>& value) {
  const at::Tensor slopes = at::empty(logits_NE.sizes(), logits_NE.options());
  constexpr double kStep = 1e-6;
  for (int64_t i = 0; i < logits_NE.numel(); ++i) {
    const auto moved = [&](double by) {
      const at::Tensor other = logits_NE.clone();
      other.view(-1)[i] += by;
      return value(other);
    };
    slopes.view(-1)[i] = (moved(kStep) - moved(-kStep)) / (2 * kStep);
  }
  return slopes;
}

TEST(Routing, SlopesOfWeightsAreDifferences) {
  const at::Tensor logits_NE = at::randn({5, 12}, at::kDouble);
  std::mt19937_64 random(11);
  std::vector<RoutingRule> rules = rules_for(3, 4, random);
  rules.push_back({.score = RouterScore::kSparseMixer, .per_token = 2, .jitter = 0.2});
  for (const RoutingRule& rule : rules) {
    const at::Tensor by = at::randn({5, rule.per_token}, at::kDouble);
    const at::Tensor leaf = logits_NE.clone().requires_grad_(true);
    const at::Tensor grad =
        torch::autograd::grad({(route(leaf, {}, rule).weights_NK * by).sum()}, {leaf})[0];
    const at::Tensor slopes = slopes_of(logits_NE, [&](const at::Tensor& x) {
      return (route(x, {}, rule).weights_NK * by).sum().item<double>();
    });
    EXPECT_LE((grad - slopes).abs().max().item<double>(), 1e-7);
  }
}

/// Two segments, of which the second has tokens elsewhere too, and a token in none.
BalanceTerm term_of(RouterScore score) {
  BalanceTerm term;
  term.score = score;
  term.parts = {{0, 3, 0}, {4, 7, 1}};
  term.lengths = {3, 9};
  term.factors = {0.7, 1.9};
  auto load = std::make_shared<ExpertLoad>();
  load->parts_SE = at::randn({2, 6}, at::kDouble).abs();
  term.load = load;
  return term;
}

TEST(Routing, TermsAreTheFormulasWithTheirSlopes) {
  const at::Tensor logits_NE = at::randn({8, 6}, at::kDouble);
  for (const RouterScore score : {RouterScore::kSoftmax, RouterScore::kSigmoid}) {
    for (const bool is_z : {false, true}) {
      const BalanceTerm term = term_of(score);
      double expected = 0;
      for (const SegmentPart& part : term.parts) {
        const auto s = static_cast<size_t>(part.segment);
        for (int64_t n = part.begin; n < part.end; ++n) {
          const Numbers logits = row_of(logits_NE, n);
          Numbers scores = scores_of(score, logits);
          double sum = 0, exponentials = 0, of_token = 0;
          for (const double each : scores) sum += each;
          for (const double logit : logits) exponentials += std::exp(logit);
          for (size_t e = 0; e < scores.size(); ++e)
            of_token += scores[e] / sum * row_of(term.load->parts_SE, part.segment)[e];
          if (is_z) of_token = std::pow(std::log(exponentials), 2);
          expected += term.factors[s] * of_token / static_cast<double>(term.lengths[s]);
        }
      }
      const auto value = [&](const at::Tensor& x) {
        return (is_z ? z_term(x, term) : balance_term(x, term));
      };
      const at::Tensor leaf = logits_NE.clone().requires_grad_(true);
      EXPECT_NEAR(value(leaf).item<double>(), expected, 1e-12);
      const at::Tensor grad = torch::autograd::grad({value(leaf)}, {leaf})[0];
      const at::Tensor slopes =
          slopes_of(logits_NE, [&](const at::Tensor& x) { return value(x).item<double>(); });
      EXPECT_LE((grad - slopes).abs().max().item<double>(), 1e-7);
    }
  }
}

TEST(Routing, AnExpertKeepsAsManyPicksOfASequenceAsItHasRoomFor) {
  const int64_t experts = 5, picks = 2;
  const std::vector<SegmentPart> parts = {{0, 11, 0}, {11, 30, 1}};
  const std::vector<int64_t> lengths = {11, 19};
  for (const bool by_position : {false, true}) {
    const Routing routing =
        route(at::randn({30, experts}, at::kDouble), {}, {.per_token = picks, .norm = true});
    const at::Tensor before = routing.experts_NK.clone(), after = routing.experts_NK;
    const int64_t dropped =
        drop_beyond(0.8, by_position, experts, parts, lengths, after, routing.weights_NK);
    int64_t expected_drops = 0;
    for (const SegmentPart& part : parts) {
      const double even =
          static_cast<double>(lengths[static_cast<size_t>(part.segment)] * picks) / experts;
      const auto room = static_cast<int64_t>(std::ceil(even * 0.8));
      for (int64_t e = 0; e < experts; ++e) {
        std::vector<std::pair<double, int64_t>> wanted;  // better ones first
        for (int64_t pick = part.begin * picks; pick < part.end * picks; ++pick) {
          if (before.view(-1)[pick].item<int64_t>() != e) continue;
          const double weight = routing.weights_NK.view(-1)[pick].item<double>();
          wanted.emplace_back(by_position ? 0.0 : -std::round(weight * 1024), pick);
        }
        std::sort(wanted.begin(), wanted.end());
        for (size_t i = 0; i < wanted.size(); ++i) {
          const bool keeps = static_cast<int64_t>(i) < room;
          expected_drops += keeps ? 0 : 1;
          EXPECT_EQ(after.view(-1)[wanted[i].second].item<int64_t>(), keeps ? e : -1);
        }
      }
    }
    EXPECT_GT(dropped, 0);
    EXPECT_EQ(dropped, expected_drops);
  }
}

}  // namespace routing_test
}  // namespace danlu::ops
