// Matrices in NF4 and products with them: against the composite of ATen's operators, and against
// dense products, which they are to equal bit for bit.
#include "ops/nf4.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <tuple>

#include "finite_differences.h"
#include "made_nf4.h"
#include "ops/kernels.h"
#include "ops/linear.h"

namespace danlu::ops {
namespace nf4_test {

using test::made_nf4;

at::Tensor random_matrix(int64_t rows, int64_t columns, at::ScalarType type, uint64_t seed = 5) {
  return (test::random_f64({rows, columns}, seed) * 0.05).to(type);
}

struct Case {
  int64_t rows, columns, block;
  bool doubly;
};
const Case kCases[] = {{1, 1, 64, false},    {5, 37, 64, true},    {40, 70, 64, false},
                       {70, 40, 128, true},  {96, 256, 64, true},  {33, 1300, 64, false},
                       {300, 129, 64, true}, {64, 448, 32, false}, {520, 320, 256, true}};

TEST(Nf4, KernelsGiveTheNumbersOfTheComposite) {
  for (const auto& [rows, columns, block, doubly] : kCases) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
      const Nf4Matrix weight = made_nf4(random_matrix(rows, columns, type), {block, doubly, type});
      EXPECT_TRUE(at::equal(nf4_rows(weight, 0, rows, at::kFloat),
                            oracle::nf4_rows(weight, 0, rows, at::kFloat)))
          << rows << " x " << columns;
      if (rows < 3) continue;
      EXPECT_TRUE(at::equal(nf4_rows(weight, 1, rows - 2, type),
                            oracle::nf4_rows(weight, 0, rows, type).narrow(0, 1, rows - 2)));
    }
  }
}

/// Numbers are within half of the widest step between codes, 0.152 of the block's largest.
TEST(Nf4, NumbersAreNearThoseThatWereQuantised) {
  const at::Tensor weight = random_matrix(96, 256, at::kFloat);
  const at::Tensor back = nf4_rows(made_nf4(weight, {64, false, at::kFloat}), 0, 96, at::kFloat);
  const at::Tensor error = (back - weight).abs().view({-1, 64}).amax(1);
  EXPECT_LT((error / weight.abs().view({-1, 64}).amax(1)).max().item<double>(), 0.153);
}

TEST(Nf4, PiecesHoldTheNumbersOfTheWhole) {
  for (const bool doubly : {false, true}) {
    for (const int64_t columns : {256, 140}) {
      const at::Tensor weight = random_matrix(48, columns, at::kBFloat16);
      const Nf4Form form{64, doubly, at::kBFloat16};
      const at::Tensor whole = nf4_rows(made_nf4(weight, form), 0, 48, at::kFloat);
      const int64_t half = columns / 2;
      const at::Tensor right =
          nf4_rows(made_nf4(weight, form, {{0, 48, half, half}}), 0, 48, at::kFloat);
      EXPECT_TRUE(at::equal(right, whole.narrow(1, half, half))) << columns;
      const at::Tensor parts = nf4_rows(
          made_nf4(weight, form, {{5, 7, 0, columns}, {30, 11, 0, columns}}), 0, 18, at::kFloat);
      EXPECT_TRUE(at::equal(parts, at::cat({whole.narrow(0, 5, 7), whole.narrow(0, 30, 11)})));
    }
  }
}

TEST(Nf4, TakesFourBitsAndAHalfOrLittleMoreThanFour) {
  const auto bits = [](bool doubly) {
    const Nf4Layout layout({64, doubly, at::kBFloat16}, 1024, 1024, {{0, 1024, 0, 1024}});
    return static_cast<double>(layout.size_bytes()) * 8 / (1024 * 1024);
  };
  EXPECT_NEAR(bits(false), 4.5, 0.001);
  EXPECT_NEAR(bits(true), 4.127, 0.001);
}

TEST(Nf4, ProductsEqualThoseWithTheDenseMatrix) {
  for (const auto& [rows, columns, block, doubly] : kCases) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
      const Nf4Matrix weight = made_nf4(random_matrix(rows, columns, type), {block, doubly, type});
      const at::Tensor dense = nf4_rows(weight, 0, rows, type);
      // Enough rows that the dense product, too, takes whole tiles.
      const at::Tensor x = test::random_f64({67, columns}, 3).to(type).requires_grad_(true),
                       same_x = x.detach().clone().requires_grad_(true);
      const at::Tensor bias = test::random_f64({rows}, 4).to(type).requires_grad_(true),
                       same_bias = bias.detach().clone().requires_grad_(true);
      const at::Tensor y = nf4_linear(x, weight, bias), same_y = linear(same_x, dense, same_bias);
      ASSERT_TRUE(at::equal(y, same_y)) << rows << " x " << columns << " " << type;
      const at::Tensor d_y = test::random_f64({67, rows}, 6).to(type);
      y.backward(d_y);
      same_y.backward(d_y);
      EXPECT_TRUE(at::equal(x.grad(), same_x.grad())) << rows << " x " << columns << " " << type;
      EXPECT_TRUE(at::equal(bias.grad(), same_bias.grad()));
    }
  }
}

/// As bitsandbytes: to the type that was quantised, then to that of the input.
TEST(Nf4, NumbersAreRoundedToBothTypes) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const Nf4Matrix weight = made_nf4(random_matrix(96, 200, type), {64, true, type});
    for (const at::ScalarType of_x : {at::kFloat, at::kBFloat16, at::kHalf}) {
      const at::Tensor x = test::random_f64({67, 200}, 3).to(of_x);
      EXPECT_TRUE(
          at::equal(nf4_linear(x, weight), linear(x, oracle::nf4_rows(weight, 0, 96, of_x))))
          << type << " " << of_x;
    }
  }
}

TEST(Nf4, KernelsAgreeWithTheComposite) {
  for (const int64_t n : {1, 3, 50}) {
    const Nf4Matrix weight = made_nf4(random_matrix(300, 129, at::kFloat), {64, true, at::kFloat});
    const auto run = [&](Kernels kernels) {
      set_kernels(kernels);
      const at::Tensor x = test::random_f64({n, 129}, 3).to(at::kFloat).requires_grad_(true);
      const at::Tensor y = nf4_linear(x, weight);
      y.backward(test::random_f64({n, 300}, 6).to(at::kFloat));
      set_kernels(Kernels::kFused);
      return std::pair(y.detach(), x.grad());
    };
    const auto [y, d_x] = run(Kernels::kFused);
    const auto [same_y, same_d_x] = run(Kernels::kComposite);
    EXPECT_LT((y - same_y).abs().max().item<double>(), 2e-6);
    EXPECT_LT((d_x - same_d_x).abs().max().item<double>(), 4e-6);
  }
}

TEST(Nf4, OfFewRowsAreProductsWithTheNumbers) {
  for (const bool doubly : {false, true}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      const at::Tensor whole = random_matrix(75, 704, type);
      // A rank's part, in two pieces of the whole.
      const Nf4Matrix weight =
          made_nf4(whole, {64, doubly, type}, {{3, 20, 0, 704}, {40, 21, 0, 704}});
      const at::Tensor dense = oracle::nf4_rows(weight, 0, 41, type).to(at::kDouble);
      const at::Tensor bias = test::random_f64({41}, 4).to(type);
      for (const int64_t n : {1, 5, 8}) {
        const at::Tensor x = test::random_f64({n, 704}, 3).to(type);
        const at::Tensor y = nf4_linear(x, weight, bias);
        const at::Tensor exact = x.to(at::kDouble).matmul(dense.t()) + bias.to(at::kDouble),
                         sums = x.to(at::kDouble).abs().matmul(dense.abs().t());
        const double step = type == at::kFloat ? 0x1p-23 : 0x1p-8;
        const at::Tensor limit = exact.abs() * step + sums * 40 * 0x1p-24;
        EXPECT_LE(((y.to(at::kDouble) - exact).abs() / limit).max().item<double>(), 1)
            << type << " " << n;
      }
    }
  }
}

}  // namespace nf4_test
}  // namespace danlu::ops
