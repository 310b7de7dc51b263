// Gradients of weights that operators sum themselves, against autograd's in f64.
#include "ops/main_grad.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <vector>

#include "base/error.h"
#include "device/select.h"
#include "finite_differences.h"
#include "ops/backend.h"
#include "ops/cross_entropy.h"
#include "ops/dora.h"
#include "ops/embedding.h"
#include "ops/linear.h"
#include "ops/norm_head.h"
#include "ops/pointwise.h"
#include "ops/rms_norm.h"
#include "ops/weight_grad.h"

namespace danlu::ops {
namespace {

using test::random_f64;

std::shared_ptr<MainGrad> place_for(const at::Tensor& weight) {
  auto main = std::make_shared<MainGrad>();
  main->sum = at::zeros(weight.sizes(), at::kFloat);
  return main;
}

double distance_from(const at::Tensor& got, const at::Tensor& truth) {
  return (got.to(at::kDouble) - truth).abs().max().item<double>() /
         truth.abs().max().item<double>();
}

/// How far a sum may be from the truth: rounding of f32.
constexpr double kMainGradLimit = 1e-5;

using Weights = std::vector<at::Tensor>;
/// The scalar of some weights that has its backward called; `main` is empty, or one for each.
using Scalar =
    std::function<at::Tensor(const Weights&, at::ScalarType, const std::vector<MainGradPtr>& main)>;

/// Tries the types that the table takes for `work`; the composite leaves its gradients to autograd.
void expect_sums(const Weights& exact, const Scalar& scalar, Work work = Work::kProducts) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    if (!cpu::backend().takes(work, type)) continue;
    SCOPED_TRACE(c10::toString(type));
    Weights own, truth;
    std::vector<std::shared_ptr<MainGrad>> places;
    std::vector<MainGradPtr> main;
    for (const at::Tensor& weight : exact) {
      own.push_back(weight.to(type).requires_grad_(true));
      truth.push_back(own.back().detach().to(at::kDouble).requires_grad_(true));
      main.push_back(places.emplace_back(place_for(weight)));
    }
    const Weights expected = torch::autograd::grad({scalar(truth, type, {})}, truth);
    constexpr int kPasses = 3;
    for (int pass = 0; pass < kPasses; ++pass) scalar(own, type, main).backward();
    for (size_t i = 0; i < own.size(); ++i) {
      EXPECT_FALSE(own[i].grad().defined()) << i;
      EXPECT_LE(distance_from(places[i]->sum / kPasses, expected[i]), kMainGradLimit) << i;
    }
  }
}

at::Tensor as(const at::Tensor& value, at::ScalarType rounded_to, const at::Tensor& like) {
  return value.to(rounded_to).to(like.scalar_type());
}

TEST(MainGrad, OfANorm) {
  const at::Tensor x = random_f64({130, 24}, 1), d_y = random_f64({130, 24}, 2);
  expect_sums(
      {random_f64({24}, 3)},
      [&](const Weights& w, at::ScalarType type, const std::vector<MainGradPtr>& main) {
        const at::Tensor input = as(x, type, w[0]);
        // The rounding before the weight is what the operator does, not what is judged.
        const at::Tensor y =
            main.empty() ? (input * (input.square().mean(-1, true) + 1e-5).rsqrt()).to(type) * w[0]
                         : ops::rms_norm(input, w[0], 1e-5, main[0]);
        return (y * as(d_y, type, w[0])).sum(at::kDouble);
      },
      Work::kRows);
}

TEST(MainGrad, OfAHeadOfRowsOfLengthOne) {
  const at::Tensor d_y = random_f64({30, 24}, 2);
  expect_sums({random_f64({30, 24}, 3)},
              [&](const Weights& w, at::ScalarType type, const std::vector<MainGradPtr>& main) {
                const at::Tensor y = ops::norm_head(w[0], main.empty() ? MainGradPtr() : main[0]);
                return (y * as(d_y, type, w[0])).sum(at::kDouble);
              });
}

TEST(MainGrad, OfALinearLayer) {
  const at::Tensor x = random_f64({40, 60}, 1), d_y = random_f64({40, 30}, 2);
  expect_sums({random_f64({30, 60}, 3), random_f64({30}, 4)},
              [&](const Weights& w, at::ScalarType type, const std::vector<MainGradPtr>& main) {
                const LinearGrads grads =
                    main.empty() ? LinearGrads{} : LinearGrads{main[0], main[1]};
                const at::Tensor y = ops::linear(as(x, type, w[0]), w[0], w[1], grads);
                // The product's own rounding is not what is judged.
                return (y * as(d_y, type, w[0])).sum(at::kDouble);
              });
}

TEST(MainGrad, OfABiasAndOfAMagnitudeThatStandAlone) {
  const at::Tensor x = random_f64({40, 30}, 1), d_y = random_f64({40, 30}, 2),
                   squares = random_f64({30}, 3).square() + 1;
  expect_sums({random_f64({30}, 4), random_f64({30}, 5)},
              [&](const Weights& w, at::ScalarType type, const std::vector<MainGradPtr>& main) {
                const at::Tensor input = as(x, type, w[0]), factor = as(d_y, type, w[0]);
                if (main.empty()) {
                  const at::Tensor length = squares.to(at::kFloat).sqrt().to(at::kDouble);
                  return ((input + w[0]) * factor + input * (w[1] / length) * factor).sum();
                }
                const at::Tensor stretch =
                    ops::stretched(input, w[1], squares.to(at::kFloat), false, main[1]);
                const at::Tensor moved = ops::add_bias(input, w[0], main[0]);
                return (moved * factor).sum(at::kDouble) + (stretch * factor).sum(at::kDouble);
              });
}

TEST(MainGrad, OfAnEmbedding) {
  const at::Tensor ids = at::tensor({3, 0, 3, 3, 6}, at::kLong), d_y = random_f64({5, 8}, 2);
  expect_sums({random_f64({7, 8}, 3)}, [&](const Weights& w, at::ScalarType type,
                                           const std::vector<MainGradPtr>& main) {
    const at::Tensor y = ops::embedding(ids, w[0], main.empty() ? MainGradPtr() : main[0]);
    return (y * as(d_y, type, w[0])).sum(at::kDouble);
  });
}

TEST(MainGrad, OfTheHead) {
  const at::Tensor hidden = random_f64({5, 6}, 1);
  const at::Tensor targets = at::tensor({3, -100, 0, 6, 2}, at::kLong);
  for (const int64_t chunk : {0, 2}) {
    Weights exact{random_f64({7, 6}, 3)};
    const at::Tensor weight = exact[0].to(at::kFloat).requires_grad_(true);
    const auto place = place_for(weight);
    HeadOptions options;
    options.chunk_tokens = chunk;
    options.grad_scale = 0.25;
    const auto loss = [&](const at::Tensor& w) {
      return head_cross_entropy(hidden.to(w.scalar_type()), w, targets, options).sum * 0.25;
    };
    const at::Tensor truth = exact[0].clone().requires_grad_(true);
    const Weights expected = torch::autograd::grad({loss(truth)}, {truth});
    options.main_grad = place;
    for (int pass = 0; pass < 2; ++pass) loss(weight).backward();
    EXPECT_FALSE(weight.grad().defined());
    EXPECT_LE(distance_from(place->sum / 2, expected[0]), 1e-5);
    EXPECT_THROW((loss(weight) * 2).backward(), InternalError);
  }
}

TEST(MainGrad, OfTheHeadWhereTheSumIsThereInBackwardOnly) {
  const at::Tensor hidden = random_f64({5, 6}, 1), exact = random_f64({7, 6}, 3);
  const at::Tensor targets = at::tensor({3, -100, 0, 6, 2}, at::kLong);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor weight = exact.to(type).requires_grad_(true);
    const auto early = place_for(weight), late = std::make_shared<MainGrad>();
    HeadOptions options;
    options.main_grad = early;
    head_cross_entropy(hidden.to(type), weight, targets, options).sum.backward();
    options.main_grad = late;
    const at::Tensor loss = head_cross_entropy(hidden.to(type), weight, targets, options).sum;
    late->sum = at::zeros(weight.sizes(), at::kFloat);
    loss.backward();
    EXPECT_FALSE(weight.grad().defined());
    EXPECT_GT(early->sum.abs().max().item<double>(), 0);
    EXPECT_TRUE(at::equal(early->sum, late->sum)) << "rounded on the way";
  }
}

TEST(MainGrad, WithoutAPlaceAutogradHasTheGradient) {
  const auto nowhere = std::make_shared<MainGrad>();
  const at::Tensor weight = random_f64({3, 4}, 1).to(at::kFloat).requires_grad_(true);
  ops::linear(random_f64({2, 4}, 2).to(at::kFloat), weight, {}, {nowhere, {}}).sum().backward();
  EXPECT_TRUE(weight.grad().defined());
}

// What a pipeline does while it would wait.
TEST(MainGrad, ALinearLayersWeightGradientMayWait) {
  const at::Tensor x_NI = random_f64({5, 4}, 1).to(at::kFloat).requires_grad_(true);
  const at::Tensor weight_OI = random_f64({3, 4}, 2).to(at::kFloat).requires_grad_(true);
  const at::Tensor d_y_NO = random_f64({5, 3}, 3).to(at::kFloat);
  const auto place = place_for(weight_OI);
  LaterWork later;
  place->later = &later;
  torch::autograd::backward({linear(x_NI, weight_OI, {}, {place, nullptr})}, {d_y_NO});
  EXPECT_LE(distance_from(x_NI.grad(), d_y_NO.matmul(weight_OI.detach()).to(at::kDouble)), 1e-6);
  ASSERT_EQ(later.size(), 1u);
  EXPECT_EQ(place->sum.abs().max().item<float>(), 0);
  later.front()();
  EXPECT_LE(distance_from(place->sum, d_y_NO.t().matmul(x_NI.detach()).to(at::kDouble)), 1e-6);
}

}  // namespace
}  // namespace danlu::ops
