// The gated delta rule: the CPU's kernels against products of runs of tokens, these against central
// differences, and both against the rule token by token.
#include "ops/gated_delta.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/conv1d.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "ops/finite_differences.h"

namespace danlu::ops {
namespace gated_delta_test {

const std::vector<int64_t> kStarts = {0, 70, 71, 100};

struct Inputs {
  at::Tensor q, k, v, decay, step;
  std::vector<at::Tensor> all() const { return {q, k, v, decay, step}; }
};

/// 2 key heads for 4 value heads; dimensions that no vector divides.
Inputs inputs_of(int64_t tokens, at::ScalarType type, uint64_t seed = 1) {
  const auto made = [&](at::IntArrayRef sizes, uint64_t more) {
    return test::random_f64(sizes, seed + more);
  };
  return {made({tokens, 2, 19}, 0).to(type), made({tokens, 2, 19}, 1).to(type),
          made({tokens, 4, 21}, 2).to(type), -at::softplus(made({tokens, 4}, 3)).to(type),
          made({tokens, 4}, 4).sigmoid().to(type)};
}

/// As ops/gated_delta.h says it, in f64.
at::Tensor token_by_token(const Inputs& of, const std::vector<int64_t>& starts) {
  const auto unit = [](const at::Tensor& x) { return x / (x.square().sum() + 1e-6).sqrt(); };
  std::vector<at::Tensor> outs;
  for (size_t s = 0; s + 1 < starts.size(); ++s) {
    std::vector<at::Tensor> memory(4, at::zeros({19, 21}, at::kDouble));
    for (int64_t t = starts[s]; t < starts[s + 1]; ++t) {
      std::vector<at::Tensor> heads;
      for (int64_t h = 0; h < 4; ++h) {
        const at::Tensor q = unit(of.q[t][h / 2]) / std::sqrt(19.0), k = unit(of.k[t][h / 2]);
        at::Tensor& m = memory[static_cast<size_t>(h)];
        m = m * of.decay[t][h].exp();
        m = m + at::outer(k, of.step[t][h] * (of.v[t][h] - m.t().matmul(k)));
        heads.push_back(m.t().matmul(q));
      }
      outs.push_back(at::stack(heads));
    }
  }
  return at::stack(outs);
}

DeltaResult run(const Inputs& of, const std::vector<int64_t>& starts,
                const at::Tensor& memory = {}) {
  return gated_delta(of.q, of.k, of.v, of.decay, of.step, starts, memory);
}

TEST(GatedDelta, IsTheRuleOfEachTokenInTurn) {
  const Inputs exact = inputs_of(100, at::kDouble), narrow = inputs_of(100, at::kFloat);
  const at::Tensor expected = token_by_token(exact, kStarts);
  EXPECT_LT((run(exact, kStarts).out_NHV - expected).abs().max().item<double>(), 1e-11);
  EXPECT_LT((run(narrow, kStarts).out_NHV - expected).abs().max().item<double>(), 1e-5);
}

TEST(GatedDelta, KernelsHaveTheGradientsOfProducts) {
  const Inputs exact = inputs_of(100, at::kDouble), narrow = inputs_of(100, at::kFloat);
  const at::Tensor weight = test::random_f64({100, 4, 21}, 9);
  const auto grads = [&](const Inputs& of) {
    for (const at::Tensor& x : of.all()) x.requires_grad_(true);
    return torch::autograd::grad({(run(of, kStarts).out_NHV * weight).sum()}, of.all());
  };
  const auto expected = grads(exact), found = grads(narrow);
  for (size_t i = 0; i < expected.size(); ++i) {
    const double largest = expected[i].abs().max().item<double>();
    EXPECT_GT(largest, 0.01) << i;
    EXPECT_LT((found[i] - expected[i]).abs().max().item<double>(), 1e-5 * largest) << i;
  }
}

TEST(GatedDelta, GradientsOfProductsAreCentralDifferences) {
  const Inputs of = inputs_of(7, at::kDouble);
  test::expect_gradients(
      [](const std::vector<at::Tensor>& x) {
        return oracle::gated_delta(x[0], x[1], x[2], x[3], x[4], {0, 4, 7}).out_NHV;
      },
      of.all(), 1e-6);
}

TEST(GatedDelta, GoesOnFromAMemory) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const Inputs of = inputs_of(90, type);
    const DeltaResult whole = run(of, {0, 90});
    const auto part = [&](int64_t first, int64_t count) {
      const auto cut = [&](const at::Tensor& x) { return x.narrow(0, first, count); };
      return Inputs{cut(of.q), cut(of.k), cut(of.v), cut(of.decay), cut(of.step)};
    };
    const DeltaResult first = run(part(0, 67), {0, 67});
    const at::Tensor kept = first.memory_SHKV.clone();
    const DeltaResult last = run(part(67, 23), {0, 23}, first.memory_SHKV);
    EXPECT_TRUE(first.memory_SHKV.equal(kept)) << "the memory that was given has changed";
    EXPECT_TRUE(at::allclose(at::cat({first.out_NHV, last.out_NHV}), whole.out_NHV, 1e-5, 1e-6));
    EXPECT_TRUE(at::allclose(last.memory_SHKV, whole.memory_SHKV, 1e-5, 1e-6));
  }
}

TEST(GatedDelta, HalvesAreComputedInF32) {
  const Inputs narrow = inputs_of(100, at::kBFloat16);
  const auto wide = [](const at::Tensor& x) { return x.to(at::kFloat); };
  const Inputs of{wide(narrow.q), wide(narrow.k), wide(narrow.v), wide(narrow.decay),
                  wide(narrow.step)};
  const at::Tensor out =
      gated_delta(narrow.q, narrow.k, narrow.v, of.decay, of.step, kStarts).out_NHV;
  EXPECT_TRUE(out.equal(run(of, kStarts).out_NHV.to(at::kBFloat16)));
}

TEST(GatedDelta, RefusesShapesThatDoNotFit) {
  Inputs of = inputs_of(9, at::kFloat);
  EXPECT_THROW(run(of, {0, 8}), ModelError);
  EXPECT_THROW(run(of, {0, 9}, at::zeros({1, 4, 19, 20})), ModelError);
  of.v = of.v.narrow(1, 0, 3);
  EXPECT_THROW(run(of, {0, 9}), ModelError);
}

TEST(CausalConvolution, IsThatOfEachSequenceAlone) {
  const at::Tensor x = test::random_f64({100, 6}, 1), weight = test::random_f64({6, 4}, 2);
  std::vector<at::Tensor> expected;
  for (size_t s = 0; s + 1 < kStarts.size(); ++s) {
    const int64_t length = kStarts[s + 1] - kStarts[s];
    const at::Tensor rows = at::constant_pad_nd(x.narrow(0, kStarts[s], length).t(), {3, 0});
    const std::vector<int64_t> one = {1}, zero = {0};
    const at::Tensor given =
        at::conv1d(rows.unsqueeze(0), weight.unsqueeze(1), {}, one, zero, one, 6);
    expected.push_back(given.squeeze(0).t());
  }
  const at::Tensor sum = at::cat(expected);
  EXPECT_LT((causal_convolution(x, weight, kStarts).y_NC - sum * sum.sigmoid())
                .abs()
                .max()
                .item<double>(),
            1e-12);
}

TEST(CausalConvolution, HasGradientsAndGoesOn) {
  const at::Tensor x = test::random_f64({9, 3}, 3), weight = test::random_f64({3, 4}, 4);
  const std::vector<int64_t> starts = {0, 2, 9};
  test::expect_gradients(
      [&](const std::vector<at::Tensor>& of) {
        return causal_convolution(of[0], of[1], starts).y_NC;
      },
      {x, weight});
  const at::Tensor none = at::zeros({1, 3, 3}, at::kDouble);
  const Convolved whole = causal_convolution(x, weight, {0, 9}, none);
  const Convolved first = causal_convolution(x.narrow(0, 0, 2), weight, {0, 2}, none),
                  last = causal_convolution(x.narrow(0, 2, 7), weight, {0, 7}, first.rows_SKC);
  EXPECT_TRUE(at::allclose(at::cat({first.y_NC, last.y_NC}), whole.y_NC));
  EXPECT_TRUE(last.rows_SKC.equal(x.narrow(0, 6, 3).unsqueeze(0)));
}

}  // namespace gated_delta_test
}  // namespace danlu::ops
