// Products of groups of rows against one linear layer for each group.
#include "ops/grouped_linear.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>
#include <numeric>
#include <random>

#include "base/error.h"
#include "finite_differences.h"
#include "ops/linear.h"

namespace danlu::ops {
namespace {

using test::random_f64;

struct Grouped {
  at::Tensor x_RI;
  std::vector<at::Tensor> weights_OI;
  std::vector<int64_t> counts;
};

Grouped random_groups(std::mt19937& random, at::ScalarType type) {
  Grouped g;
  const auto groups = static_cast<size_t>(1 + random() % 6);
  const int64_t inputs = 1 + static_cast<int64_t>(random() % 70),
                outputs = 1 + static_cast<int64_t>(random() % 50);
  for (size_t i = 0; i < groups; ++i) {
    // Some are empty, some few rows, some many.
    const int64_t most = std::vector<int64_t>{1, 4, 130}[random() % 3];
    g.counts.push_back(static_cast<int64_t>(random() % static_cast<uint64_t>(most)));
    g.weights_OI.push_back(random_f64({outputs, inputs}, random()).to(type));
  }
  const int64_t rows = std::accumulate(g.counts.begin(), g.counts.end(), int64_t{0});
  g.x_RI = random_f64({rows, inputs}, random()).to(type);
  return g;
}

TEST(GroupedLinear, EqualsALinearLayerForEachGroup) {
  std::mt19937 random(11);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
    const double limit = type == at::kDouble ? 1e-12 : type == at::kFloat ? 2e-5 : 2e-2;
    for (int round = 0; round < 25; ++round) {
      Grouped g = random_groups(random, type);
      const at::Tensor d_y = random_f64({g.x_RI.size(0), g.weights_OI.front().size(0)}, 7).to(type);
      std::vector<at::Tensor> inputs{g.x_RI};
      inputs.insert(inputs.end(), g.weights_OI.begin(), g.weights_OI.end());
      for (at::Tensor& input : inputs) input.requires_grad_(true);
      const auto run = [&](const auto& f) {
        const at::Tensor y = f();
        auto grads = torch::autograd::grad({y}, inputs, {d_y});
        grads.push_back(y.detach());
        return grads;
      };
      const auto got = run([&] { return grouped_linear(g.x_RI, g.weights_OI, g.counts); });
      const auto expected =
          run([&] { return oracle::grouped_linear(g.x_RI, g.weights_OI, g.counts); });
      for (size_t i = 0; i < got.size(); ++i) {
        if (got[i].numel() == 0) continue;
        const at::Tensor far = (got[i].to(at::kDouble) - expected[i].to(at::kDouble)).abs();
        EXPECT_LE(far.max().item<double>(),
                  limit * std::max(1.0, expected[i].to(at::kDouble).abs().max().item<double>()))
            << c10::toString(type) << " round " << round << " tensor " << i;
      }
      const at::NoGradGuard no_grad;
      const at::Tensor without = grouped_linear(g.x_RI, g.weights_OI, g.counts);
      if (without.numel() > 0) {
        EXPECT_LE(
            (without.to(at::kDouble) - expected.back().to(at::kDouble)).abs().max().item<double>(),
            limit * std::max(1.0, expected.back().to(at::kDouble).abs().max().item<double>()));
      }
    }
  }
}

/// Whichever factor is packed, the sums run in one order.
TEST(GroupedLinear, GivesTheBitsOfALinearLayer) {
  std::mt19937 random(5);
  for (const int64_t rows : {28, 32, 61, 64, 96, 128, 160, 161}) {
    const int64_t inputs = 1 + static_cast<int64_t>(random() % 2500), outputs = 4 * rows + 3;
    const at::Tensor x = random_f64({rows, inputs}, random()).to(at::kFloat),
                     weight = random_f64({outputs, inputs}, random()).to(at::kFloat);
    EXPECT_TRUE(at::equal(grouped_linear(x, {weight}, {rows}), linear(x, weight)))
        << rows << " " << inputs;
  }
}

int64_t one_of(std::mt19937& random, const std::vector<int64_t>& list) {
  return list[random() % list.size()];
}
at::Tensor whole_numbers(at::IntArrayRef sizes, std::mt19937& random) {
  return random_f64(sizes, random()).mul(2).round().clamp(-2, 2);
}

/// The result and the gradients of everything.
std::vector<at::Tensor> all_of(const Grouped& g, const at::Tensor& d_y_RO) {
  std::vector<at::Tensor> inputs{g.x_RI};
  inputs.insert(inputs.end(), g.weights_OI.begin(), g.weights_OI.end());
  for (at::Tensor& input : inputs) input.requires_grad_(true);
  const at::Tensor y = grouped_linear(g.x_RI, g.weights_OI, g.counts);
  auto all = torch::autograd::grad({y}, inputs, {d_y_RO});
  all.push_back(y.detach());
  return all;
}

/// Shapes around the borders of tiles, panels and blocks.
Grouped groups_at_borders(std::mt19937& random) {
  Grouped g;
  const int64_t inputs = one_of(random, {1, 2, 6, 62, 64, 66, 130, 192, 1024, 2050, 2306}),
                outputs = one_of(random, {1, 15, 16, 17, 47, 63, 64, 65, 128, 131, 200, 300});
  const size_t groups = 1 + random() % 4;
  int64_t rows = 0;
  for (size_t i = 0; i < groups; ++i) {
    g.counts.push_back(one_of(random, {0, 1, 33, 63, 64, 65, 95, 96, 97, 130, 200, 300}));
    g.weights_OI.push_back(whole_numbers({outputs, inputs}, random));
    rows += g.counts.back();
  }
  g.x_RI = whole_numbers({rows, inputs}, random);
  return g;
}

/// Sums of small whole numbers are exact, so a result is the true one, rounded once.
void expect_truth(Grouped g, at::ScalarType type, std::mt19937& random) {
  const int before = at::get_num_threads();
  const at::Tensor d_y = whole_numbers({g.x_RI.size(0), g.weights_OI.front().size(0)}, random);
  const std::vector<at::Tensor> truth = all_of(g, d_y);
  g.x_RI = g.x_RI.detach().to(type);
  for (at::Tensor& weight : g.weights_OI) weight = weight.detach().to(type);
  for (const int threads : {1, 3}) {
    at::set_num_threads(threads);
    const std::vector<at::Tensor> got = all_of(g, d_y.to(type));
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_TRUE(at::equal(got[i], truth[i].to(at::kFloat).to(type)))
          << c10::toString(type) << ", " << threads << " threads, tensor " << i << " of x "
          << g.x_RI.sizes() << " and weights " << g.weights_OI.front().sizes();
  }
  at::set_num_threads(before);
}

TEST(GroupedLinear, OfWholeNumbersIsTheTruthForEveryShapeAndNumberOfThreads) {
  std::mt19937 random(23);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (int round = 0; round < 10 && !testing::Test::HasFailure(); ++round)
      expect_truth(groups_at_borders(random), type, random);
  }
}

// Several blocks of rows on three panels, which three threads divide, or a part of one more; sums
// of an odd number of pairs; and last a product whose rows do not stay in the second cache.
TEST(GroupedLinear, OfWholeNumbersIsTheTruthPanelByPanel) {
  struct Shape {
    int64_t rows, inputs, outputs;
  };
  std::mt19937 random(29);
  for (const Shape& shape : {Shape{97, 62, 192}, Shape{130, 66, 192}, Shape{300, 514, 192},
                             Shape{130, 514, 3 * 64 + 15}, Shape{300, 1024, 192}}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
      Grouped g;
      g.counts = {shape.rows, shape.rows};
      for (size_t i = 0; i < g.counts.size(); ++i)
        g.weights_OI.push_back(whole_numbers({shape.outputs, shape.inputs}, random));
      g.x_RI = whole_numbers({2 * shape.rows, shape.inputs}, random);
      expect_truth(g, type, random);
    }
  }
}

TEST(GroupedLinear, SumsOfAGroupWithoutRowsBecomeZeroAndOthersGrow) {
  const std::vector<int64_t> counts{3, 0, 2};
  const at::Tensor x = random_f64({5, 4}, 1).to(at::kFloat).requires_grad_(true);
  std::vector<at::Tensor> weights;
  std::vector<MainGradPtr> main;
  for (uint64_t group = 0; group < 3; ++group) {
    weights.push_back(random_f64({6, 4}, 2 + group).to(at::kFloat).requires_grad_(true));
    auto place = std::make_shared<MainGrad>();
    place->sum = at::zeros({6, 4}, at::kFloat).fill_(std::numeric_limits<float>::quiet_NaN());
    place->is_fresh = true;
    main.push_back(place);
  }
  at::Tensor expected_first = at::zeros({6, 4}, at::kDouble);
  for (int pass = 0; pass < 2; ++pass) {
    const at::Tensor y = grouped_linear(x, weights, counts, main);
    const at::Tensor d_y = random_f64(y.sizes(), 20 + static_cast<uint64_t>(pass)).to(at::kFloat);
    torch::autograd::backward({y}, {d_y});
    expected_first +=
        d_y.narrow(0, 0, 3).to(at::kDouble).t().mm(x.detach().narrow(0, 0, 3).to(at::kDouble));
  }
  EXPECT_LE((main[0]->sum.to(at::kDouble) - expected_first).abs().max().item<double>(), 1e-5);
  EXPECT_EQ(main[1]->sum.abs().max().item<float>(), 0.0f);
  EXPECT_FALSE(main[1]->is_fresh);
  for (const at::Tensor& weight : weights) EXPECT_FALSE(weight.grad().defined());
}

TEST(GroupedLinear, FrozenWeightsAndFrozenRowsHaveNoGradient) {
  const std::vector<int64_t> counts{40, 35};
  const at::Tensor x = random_f64({75, 8}, 1).to(at::kFloat);
  std::vector<at::Tensor> weights;
  std::vector<MainGradPtr> main;
  for (uint64_t group = 0; group < 2; ++group) {
    weights.push_back(random_f64({6, 8}, 2 + group).to(at::kFloat));
    main.push_back(std::make_shared<MainGrad>());
    main.back()->sum = at::zeros({6, 8}, at::kFloat);
    main.back()->is_fresh = true;
  }
  // Nothing is trained: nothing is kept for a backward.
  EXPECT_FALSE(grouped_linear(x, weights, counts, main).requires_grad());
  // Adapters alone: what goes on to them is the rows' gradient.
  const at::Tensor rows = x.detach().clone().requires_grad_(true);
  grouped_linear(rows, weights, counts, main).sum().backward();
  EXPECT_TRUE(rows.grad().defined());
  EXPECT_TRUE(main[0]->is_fresh && main[1]->is_fresh) << "a frozen weight's sum was written";
  // One expert is trained.
  weights[1].requires_grad_(true);
  grouped_linear(x, weights, counts, main).sum().backward();
  EXPECT_TRUE(main[0]->is_fresh);
  EXPECT_FALSE(main[1]->is_fresh);
  const at::Tensor expected = x.narrow(0, 40, 35).sum(0).expand({6, 8});
  EXPECT_LE((main[1]->sum - expected).abs().max().item<float>(), 1e-4f);
}

TEST(GroupedLinear, WhatDoesNotFitIsRefused) {
  const at::Tensor x = at::zeros({5, 4}), weight = at::zeros({6, 4});
  EXPECT_THROW(grouped_linear(x, {weight}, {4}), ModelError);
  EXPECT_THROW(grouped_linear(x, {weight, weight}, {5}), ModelError);
  EXPECT_THROW(grouped_linear(x, {weight, at::zeros({6, 3})}, {3, 2}), ModelError);
  EXPECT_THROW(grouped_linear(x, {weight, at::zeros({7, 4})}, {3, 2}), ModelError);
  EXPECT_THROW(grouped_linear(x, {weight, weight.to(at::kDouble)}, {3, 2}), ModelError);
}

}  // namespace
}  // namespace danlu::ops
