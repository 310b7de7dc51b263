// Terms of the loss that keep experts in balance, against their published formulas in plain loops.
#include "layers/balance.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <gtest/gtest.h>

#include <set>

namespace danlu::layers {
namespace {

/// DeepSeek-V2's three terms (arXiv 2405.04434, equations 23 to 31) of one segment.
double published_terms(const at::Tensor& scores_NE, const at::Tensor& picks_NK, int64_t begin,
                       int64_t end, const ops::RoutingRule& rule,
                       const settings::RouterTraining& training) {
  const int64_t experts = scores_NE.size(1), each = experts / rule.groups;
  const auto tokens = static_cast<double>(end - begin);
  const auto k = static_cast<double>(rule.per_token), n = static_cast<double>(experts);
  double by_expert = 0, by_group = 0, by_sent = 0;
  for (int64_t group = 0; group < rule.groups; ++group) {
    double group_f = 0, group_p = 0, sent = 0;
    for (int64_t e = group * each; e < (group + 1) * each; ++e) {
      double picked = 0, score = 0;
      for (int64_t t = begin; t < end; ++t) {
        score += scores_NE[t][e].item<double>();
        for (int64_t pick = 0; pick < rule.per_token; ++pick)
          picked += picks_NK[t][pick].item<int64_t>() == e ? 1 : 0;
      }
      const double f = n / (k * tokens) * picked, p = score / tokens;
      by_expert += f * p;
      group_f += f / static_cast<double>(each);
      group_p += p;
    }
    for (int64_t t = begin; t < end; ++t) {
      std::set<int64_t> groups;
      for (int64_t pick = 0; pick < rule.per_token; ++pick)
        groups.insert(picks_NK[t][pick].item<int64_t>() / each);
      sent += groups.count(group) > 0 ? 1 : 0;
    }
    by_group += group_f * group_p;
    by_sent += static_cast<double>(rule.groups) /
               (static_cast<double>(rule.chosen_groups) * tokens) * sent * group_p;
  }
  return training.aux_loss_coef * by_expert + training.group_loss_coef * by_group +
         training.group_sent_loss_coef * by_sent;
}

struct Coefficients {
  double expert, group, sent;
};

class BalanceTerms : public testing::TestWithParam<Coefficients> {};

TEST_P(BalanceTerms, AreThePublishedSumsOfEachSegment) {
  const auto& [expert, group, sent] = GetParam();
  const int64_t experts = 12;
  const ops::RoutingRule rule{.per_token = 3, .groups = 4, .chosen_groups = 2};
  const at::Tensor logits_NE = at::randn({23, experts}, at::kDouble);
  const ops::Routing routing = ops::route(logits_NE, {}, rule);
  const at::Tensor scores_NE = at::softmax(logits_NE, 1);
  Balance balance;
  balance.training.aux_loss_coef = expert;
  balance.training.group_loss_coef = group;
  balance.training.group_sent_loss_coef = sent;
  balance.parts = {{0, 9, 0}, {9, 23, 1}};
  balance.lengths = {9, 14};
  balance.weights = {2.0, 5.0};
  ops::BalanceTerm term;
  term.parts = balance.parts;
  term.lengths = balance.lengths;
  term.load = balance.load_of(routing.experts_NK, rule, experts, /*records=*/true);
  double expected = 0;
  for (const ops::SegmentPart& part : balance.parts) {
    const double weight = balance.weights[static_cast<size_t>(part.segment)];
    term.factors.push_back(balance.factor(rule, experts) * weight);
    expected += weight * published_terms(scores_NE, routing.experts_NK, part.begin, part.end, rule,
                                         balance.training);
  }
  EXPECT_NEAR(ops::balance_term(logits_NE, term).item<double>(), expected, 1e-12);
  EXPECT_GT(expected, 0);
}

INSTANTIATE_TEST_SUITE_P(Layers, BalanceTerms,
                         testing::Values(Coefficients{0.003, 0, 0}, Coefficients{0, 0.05, 0},
                                         Coefficients{0, 0, 0.02},
                                         Coefficients{0.003, 0.05, 0.02}));

}  // namespace
}  // namespace danlu::layers
