// What training sums of a weight's gradient, for every type and layout, against f64.
#include "ops/weight_grad.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "finite_differences.h"

namespace danlu::ops {
namespace {

using test::random_f64;

/// The largest element's share that a sum may be off: rounding of f32.
constexpr double kWeightGradLimit = 2e-6;

struct Shape {
  int64_t tokens, inputs, outputs;
};

/// Columns `begin` to `begin + count` of a wider matrix: rows that do not follow each other.
at::Tensor part_of(int64_t tokens, int64_t count, uint64_t seed, at::ScalarType type) {
  return random_f64({tokens, count + 5}, seed).to(type).narrow(1, 3, count);
}

void expect_sums(const Shape& shape, at::ScalarType type, bool is_fresh) {
  SCOPED_TRACE(testing::Message() << c10::toString(type) << ' ' << shape.tokens << " x "
                                  << shape.inputs << " -> " << shape.outputs);
  constexpr int kPasses = 3;
  at::Tensor sum = at::zeros({shape.outputs + 2, shape.inputs + 7}, at::kFloat)
                       .narrow(0, 1, shape.outputs)
                       .narrow(1, 4, shape.inputs);
  at::Tensor exact = random_f64(sum.sizes(), 9);
  if (is_fresh) exact.zero_();
  sum.copy_(exact);
  exact = sum.to(at::kDouble);
  if (is_fresh) sum.fill_(std::numeric_limits<float>::quiet_NaN());
  for (uint64_t pass = 0; pass < kPasses; ++pass) {
    const at::Tensor d_y = part_of(shape.tokens, shape.outputs, 2 * pass, type);
    const at::Tensor x = part_of(shape.tokens, shape.inputs, 2 * pass + 1, type);
    add_weight_grad(d_y, x, sum, is_fresh && pass == 0);
    exact += at::mm(d_y.to(at::kDouble).t(), x.to(at::kDouble));
  }
  EXPECT_LE((sum.to(at::kDouble) - exact).abs().max().item<double>(),
            kWeightGradLimit * exact.abs().max().item<double>());
}

TEST(WeightGrad, IsSummedWithoutRoundingToSixteenBits) {
  // Single rows and columns, an odd number of tokens, tails of every tile, more than one pass.
  std::vector<Shape> shapes{{1, 1, 1},    {2, 64, 96}, {7, 65, 97},    {8, 8, 8},      {511, 3, 20},
                            {174, 1, 63}, {90, 40, 1}, {513, 130, 31}, {1030, 70, 200}};
  std::mt19937 random(3);
  for (int i = 0; i < 40; ++i) {
    // A quarter are vectors.
    const auto size = [&](int64_t most) {
      return random() % 4 == 0 ? 1 : static_cast<int64_t>(random() % most) + 1;
    };
    shapes.push_back({size(600), size(200), size(300)});
  }
  for (const Shape& shape : shapes) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf})
      for (const bool is_fresh : {false, true}) expect_sums(shape, type, is_fresh);
  }
}

TEST(WeightGrad, OfTransposedFactors) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const at::Tensor d_y = random_f64({30, 41}, 1).to(type).t();
    const at::Tensor x = random_f64({20, 41}, 2).to(type).t();
    const at::Tensor sum = at::zeros({30, 20}, at::kFloat);
    add_weight_grad(d_y, x, sum);
    const at::Tensor exact = at::mm(d_y.to(at::kDouble).t(), x.to(at::kDouble));
    EXPECT_LE((sum.to(at::kDouble) - exact).abs().max().item<double>(),
              kWeightGradLimit * exact.abs().max().item<double>());
  }
}

TEST(WeightGrad, OfNoTokensIsNothing) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const at::Tensor sum = random_f64({3, 5}, 1).to(at::kFloat), before = sum.clone();
    add_weight_grad(at::zeros({0, 3}, type), at::zeros({0, 5}, type), sum);
    EXPECT_TRUE(sum.equal(before));
    add_weight_grad(at::zeros({0, 3}, type), at::zeros({0, 5}, type), sum, true);
    EXPECT_TRUE(sum.equal(at::zeros_like(sum)));
  }
}

}  // namespace
}  // namespace danlu::ops
