// Routers against double loops over random shapes, ties included, and slopes against differences.
#include "ops/routing.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
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

#include "device/counted_memory.h"

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

/// As Hugging Face's Llama 4, which takes the largest logits and their sigmoids behind that.
TEST(Routing, SigmoidsThatAreAllOneDoNotHideTheLargestLogit) {
  const at::Tensor logits_NE = at::tensor({18.0, 20.0, -120.0, 19.0}).to(at::kFloat).view({1, 4});
  const RoutingRule rule{.score = RouterScore::kSigmoid, .per_token = 2};
  const Routing got = route(logits_NE, {}, rule);
  EXPECT_EQ(got.experts_NK[0][0].item<int64_t>(), 1);
  EXPECT_EQ(got.experts_NK[0][1].item<int64_t>(), 3);
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

/// exp(logit) over the logits near the largest that is not taken, 0 elsewhere; the largest.
std::pair<Numbers, int64_t> near_largest(const Numbers& logits, int64_t taken, double jitter) {
  const int64_t best = best_of(logits, taken < 0 ? std::set<int64_t>{} : std::set<int64_t>{taken});
  const double largest = logits[static_cast<size_t>(best)];
  Numbers scores(logits.size(), 0);
  double sum = 0;
  for (size_t e = 0; e < logits.size(); ++e) {
    const double far = (largest - logits[e]) / std::max(std::abs(logits[e]), largest);
    if (static_cast<int64_t>(e) == taken || far > 2 * jitter) continue;
    sum += scores[e] = std::exp(logits[e]);
  }
  for (double& score : scores) score /= sum;
  return {scores, best};
}

// Phi-3.5-MoE's sparsemixer in training: picks by the softmax near the largest logit, of which one
// that is not the largest has a third of its weight three times out of four.
TEST(Routing, DrawnPicksHaveTheFrequenciesAndWeightsOfSparsemixer) {
  const RoutingRule rule{.score = RouterScore::kSparseMixer, .per_token = 2, .jitter = 0.3};
  const Numbers logits = {2.0, 1.7, -0.5, 1.9, 1.2};
  const int64_t draws = 40000;
  const at::Tensor logits_NE =
      at::tensor(logits, at::kDouble).unsqueeze(0).expand({draws, 5}).contiguous();
  at::Tensor keys_N = at::empty({draws}, at::kLong);
  for (int64_t n = 0; n < draws; ++n)
    keys_N.data_ptr<int64_t>()[n] = static_cast<int64_t>(std::mt19937_64(n)());
  const Routing got = route(logits_NE, {}, rule, {.keys_N = keys_N, .salt = 3});
  Numbers first(5, 0), second(5, 0);
  int64_t others = 0, whole = 0;
  const Numbers expected_first = near_largest(logits, -1, rule.jitter).first;
  Numbers expected_second(5, 0);
  for (int64_t n = 0; n < draws; ++n) {
    const auto one = got.experts_NK[n][0].item<int64_t>(),
               two = got.experts_NK[n][1].item<int64_t>();
    first[static_cast<size_t>(one)] += 1;
    second[static_cast<size_t>(two)] += 1;
    const auto [scores, best] = near_largest(logits, one, rule.jitter);
    for (size_t e = 0; e < 5; ++e) expected_second[e] += scores[e];
    const double score = scores[static_cast<size_t>(two)];
    const double weight = got.weights_NK[n][1].item<double>();
    const bool is_whole = std::abs(weight - score) < 1e-12;
    if (two == best) {
      ASSERT_TRUE(is_whole);
      continue;
    }
    ++others;
    whole += is_whole ? 1 : 0;
    if (!is_whole) ASSERT_NEAR(weight, score * 0.3333, 1e-12);
  }
  const double slack = 5 * std::sqrt(0.25 * draws);  // five deviations of a count
  for (size_t e = 0; e < 5; ++e) {
    EXPECT_NEAR(first[e], expected_first[e] * draws, slack) << e;
    EXPECT_NEAR(second[e], expected_second[e], slack) << e;
  }
  EXPECT_GT(others, draws / 4);
  EXPECT_NEAR(static_cast<double>(whole), 0.25 * static_cast<double>(others), slack);
  EXPECT_EQ(first[2], 0);
  // The same keys draw the same, other rows or not; another salt draws otherwise.
  const Routing part = route(logits_NE.narrow(0, 0, 100), {}, rule,
                             {.keys_N = keys_N.narrow(0, 100, 100), .salt = 3});
  EXPECT_TRUE(part.experts_NK.equal(got.experts_NK.narrow(0, 100, 100)));
  const Routing other = route(logits_NE, {}, rule, {.keys_N = keys_N, .salt = 4});
  EXPECT_FALSE(other.experts_NK.equal(got.experts_NK));
}

// MultiplierProcessor's backward: d_logit_e = d · s_c · ((e == c) - s_e), whatever part of s_c the
// weight is.
TEST(Routing, DrawnPicksHaveTheGradientOfTheirWholeWeight) {
  const RoutingRule rule{.score = RouterScore::kSparseMixer, .per_token = 2, .jitter = 0.3};
  const at::Tensor logits_NE = (at::randn({50, 6}, at::kDouble) + 2).requires_grad_(true);
  const at::Tensor keys_N = at::arange(50, at::kLong);
  const Routing got = route(logits_NE, {}, rule, {.keys_N = keys_N});
  const at::Tensor d_NK = at::randn({50, 2}, at::kDouble);
  const at::Tensor grad = torch::autograd::grad({got.weights_NK}, {logits_NE}, {d_NK})[0];
  at::Tensor expected = at::zeros({50, 6}, at::kDouble);
  for (int64_t n = 0; n < 50; ++n) {
    int64_t taken = -1;
    for (int64_t k = 0; k < 2; ++k) {
      const auto pick = got.experts_NK[n][k].item<int64_t>();
      const Numbers scores = near_largest(row_of(logits_NE.detach(), n), taken, rule.jitter).first;
      for (int64_t e = 0; e < 6; ++e) {
        expected[n][e] += d_NK[n][k].item<double>() * scores[static_cast<size_t>(pick)] *
                          ((e == pick ? 1.0 : 0.0) - scores[static_cast<size_t>(e)]);
      }
      taken = pick;
    }
  }
  EXPECT_LE((grad - expected).abs().max().item<double>(), 1e-12);
}

TEST(Routing, PicksThatAreMadeAreWeighedByTheRule) {
  const at::Tensor logits_NE = at::randn({20, 6}, at::kDouble);
  const RoutingRule rule{.per_token = 2, .norm = true};
  const at::Tensor own = route(logits_NE, {}, rule).experts_NK.flip(1);
  const Routing got = route(logits_NE, {}, rule, {.picks_NK = own});
  EXPECT_TRUE(got.experts_NK.equal(own));
  EXPECT_TRUE(got.weights_NK.equal(route(logits_NE, {}, rule).weights_NK.flip(1)));
  EXPECT_ANY_THROW(route(logits_NE, {}, rule, {.picks_NK = own.narrow(0, 0, 3)}));
}

// Its factors grow with every round where an expert is far from wanted: Megatron's loop, which ends
// when they no longer change, takes 96,290 rounds here.
TEST(Routing, SinkhornEndsHoweverFarAnExpertIsFromWanted) {
  const at::Tensor logits_NE = at::zeros({2, 2}, at::kDouble);
  logits_NE[0][1].fill_(-30);
  const at::Tensor wanted_NE = logits_NE.exp();
  at::Tensor rows_N = at::zeros({2}, at::kDouble), columns_E = at::ones({2}, at::kDouble);
  for (int64_t round = 0; round < kSinkhornRounds; ++round) {
    rows_N = 1 / (2 * ((wanted_NE * columns_E).sum(1) + 1e-8));
    columns_E = 1 / (2 * ((wanted_NE * rows_N.unsqueeze(1)).sum(0) + 1e-8));
  }
  const at::Tensor expected_NE = wanted_NE * rows_N.unsqueeze(1) * columns_E,
                   got_NE = sinkhorn(logits_NE, {{0, 2, 0}});
  EXPECT_LE((got_NE - expected_NE).abs().max().item<double>(), 1e-12);
  EXPECT_EQ(balanced_picks(got_NE, logits_NE, 1).flatten()[0].item<int64_t>(), 0);
  EXPECT_EQ(balanced_picks(got_NE, logits_NE, 1).flatten()[1].item<int64_t>(), 1);
}

TEST(Routing, NoiseIsMadeAgainForTheBackwardAndNotKept) {
  device::count_host_memory();
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = (at::arange(3000 * 400, at::kDouble) / 1e5).view({3000, 400}).to(type),
                     keys = at::arange(3000, at::kLong);
    const at::Tensor factors = jitter_factors(keys, 5, 400, 0.1).to(at::kFloat);
    const auto times = [&](const at::Tensor& of) { return (of.to(at::kFloat) * factors).to(type); };
    const at::Tensor leaf = x.clone().requires_grad_(true);
    const int64_t before = device::host_memory();
    const at::Tensor noisy = jittered(leaf, keys, 5, 0.1);
    EXPECT_LT(device::host_memory() - before, noisy.numel() * noisy.element_size() * 5 / 4);
    EXPECT_TRUE(noisy.equal(times(x)));
    EXPECT_TRUE(torch::autograd::grad({noisy}, {leaf}, {x})[0].equal(times(x)));
  }
  EXPECT_ANY_THROW(jittered(at::zeros({3, 2}), at::arange(2, at::kLong), 5, 0.1));
}

TEST(Routing, NoiseOfATokenDependsOnItsKeyAlone) {
  const at::Tensor keys_N = at::arange(500, at::kLong);
  const at::Tensor factors = jitter_factors(keys_N, 1, 40, 0.1);
  EXPECT_TRUE(factors.narrow(0, 7, 3).equal(jitter_factors(keys_N.narrow(0, 7, 3), 1, 40, 0.1)));
  EXPECT_FALSE(factors.equal(jitter_factors(keys_N, 2, 40, 0.1)));
  EXPECT_GE(factors.min().item<double>(), 0.9);
  EXPECT_LE(factors.max().item<double>(), 1.1);
  // Uniform: mean 1, variance 0.1² / 3.
  EXPECT_NEAR(factors.mean().item<double>(), 1, 5 * 0.1 / std::sqrt(3.0 * 20000));
  EXPECT_NEAR((factors - 1).square().mean().item<double>(), 0.01 / 3, 2e-4);
}

}  // namespace routing_test
}  // namespace danlu::ops
