// linear() for every type, against the same values in f64: natively where the processor has the
// instructions, widened in blocks or inside the dot product where it has not.
#include "ops/linear.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "base/cpu_class.h"
#include "base/error.h"
#include "finite_differences.h"
#include "largest_allocation.h"
#include "ops/cross_entropy.h"
#include "ops/gemm_kernels_cpu.h"
#include "ops/row_kernels_cpu.h"

namespace danlu::ops {
namespace {

struct LinearCase {
  int64_t rows, inputs, outputs;
  bool bias;
  std::string name() const {
    return std::to_string(rows) + " x " + std::to_string(inputs) + " -> " +
           std::to_string(outputs) + (bias ? " with bias" : "");
  }
};

std::vector<LinearCase> linear_cases() {
  // Few rows and many, single columns, weights of more than one block of 2^20 elements, and more
  // in every direction than is packed at a time.
  std::vector<LinearCase> cases{
      {1, 7, 5, true},        {1, 1, 1, false},      {8, 64, 33, true},
      {9, 64, 33, true},      {0, 12, 6, true},      {3, 8200, 300, true},
      {40, 8200, 300, false}, {20, 700, 3100, true}, {1100, 1500, 1100, true}};
  std::mt19937 random(11);
  for (int i = 0; i < 12; ++i) {
    const auto size = [&](int64_t most) { return static_cast<int64_t>(random() % most) + 1; };
    cases.push_back({size(20), size(150), size(150), i % 2 == 0});
  }
  return cases;
}

/// The result, then the gradients of x, weight and bias, for a d_y of `type`.
std::vector<at::Tensor> outcome(const std::vector<at::Tensor>& values, at::ScalarType type) {
  std::vector<at::Tensor> inputs;
  for (const at::Tensor& value : values) inputs.push_back(value.detach().requires_grad_(true));
  const at::Tensor y =
      ops::linear(inputs[0], inputs[1], inputs.size() > 2 ? inputs[2] : at::Tensor());
  const at::Tensor d_y = test::random_f64(y.sizes(), 5).to(type).to(y.scalar_type());
  std::vector<at::Tensor> result = torch::autograd::grad({y}, inputs, {d_y});
  result.insert(result.begin(), y.detach());
  return result;
}

double distance(const at::Tensor& got, const at::Tensor& truth) {
  if (truth.numel() == 0) return 0;
  const double largest = std::max(truth.abs().max().item<double>(), 1e-9);
  return (got.to(at::kDouble) - truth).abs().max().item<double>() / largest;
}

TEST(Linear, EveryTypeIsWithinItsRoundingOfTheTruth) {
  for (const LinearCase& c : linear_cases()) {
    std::vector<at::Tensor> values{test::random_f64({c.rows, c.inputs}, 1),
                                   test::random_f64({c.outputs, c.inputs}, 2)};
    if (c.bias) values.push_back(test::random_f64({c.outputs}, 3));
    // Sums are f32: half a unit of the type's last place, and some f32 rounding.
    for (const auto& [type, limit] :
         {std::pair{at::kFloat, 1e-5}, std::pair{at::kBFloat16, 3.95e-3},
          std::pair{at::kHalf, 5e-4}}) {
      std::vector<at::Tensor> inputs, exact;
      for (const at::Tensor& value : values) {
        inputs.push_back(value.to(type));
        exact.push_back(inputs.back().to(at::kDouble));
      }
      const auto got = outcome(inputs, type), truth = outcome(exact, type);
      for (size_t i = 0; i < got.size(); ++i) {
        EXPECT_EQ(got[i].scalar_type(), type);
        EXPECT_EQ(got[i].sizes(), truth[i].sizes());
        EXPECT_LE(distance(got[i], truth[i]), limit)
            << c.name() << ", " << c10::toString(type) << ", "
            << (i == 0 ? "result" : "gradient of input " + std::to_string(i - 1));
      }
    }
  }
}

/// Without gradients a few rows go another way than many, and bf16 than others.
TEST(Linear, WithoutGradientsAResultIsTheF64OneRoundedOnce) {
  std::vector<LinearCase> cases = linear_cases();
  for (int64_t rows = 1; rows <= 9; ++rows)
    cases.push_back({rows, 31 + 16 * rows, 21, rows % 2 == 0});
  // Longer than what is summed at a time, and more outputs than are.
  for (const int64_t rows : {1, 2, 3, 4, 7, 16, 23, 25, 33})
    cases.push_back({rows, 2085, 37, false});
  for (const LinearCase& c : cases) {
    for (const auto& [type, digits] :
         {std::pair(at::kFloat, 24), {at::kBFloat16, 8}, {at::kHalf, 11}}) {
      const at::Tensor x = test::random_f64({c.rows, c.inputs}, 1).to(type);
      const at::Tensor weight = test::random_f64({c.outputs, c.inputs}, 2).to(type);
      const at::Tensor bias = c.bias ? test::random_f64({c.outputs}, 3).to(type) : at::Tensor();
      const at::Tensor y = ops::linear(x, weight, bias);
      EXPECT_EQ(y.scalar_type(), type);
      if (c.rows == 0) continue;
      at::Tensor exact = x.to(at::kDouble).matmul(weight.to(at::kDouble).t());
      at::Tensor sums = x.to(at::kDouble).abs().matmul(weight.to(at::kDouble).abs().t());
      if (c.bias) {
        exact = exact + bias.to(at::kDouble);
        sums = sums + bias.to(at::kDouble).abs();
      }
      // Half a unit in the last place of the type, and an f32 sum in an unknown order.
      const at::Tensor bound =
          exact.abs() * std::pow(2.0, -digits) + sums * static_cast<double>(c.inputs + 2) * 0x1p-24;
      EXPECT_LE(((y.to(at::kDouble) - exact).abs() / bound).max().item<double>(), 1.0)
          << c.name() << " " << type;
    }
  }
}

/// The tiles are called by name: kernels of processors that widen bf16 never come to them.
TEST(Linear, Bf16TilesMultiplyWhereTheInstructionIs) {
  if (!has_bf16_dots()) GTEST_SKIP() << "no dot products of bf16";
  const size_t columns = cpu::panel_columns(cpu::Arithmetic::kBF16);
  for (const size_t k : {1, 2, 63, 130}) {
    const size_t steps = cpu::steps_of(cpu::Arithmetic::kBF16, k), used = columns - 3;
    for (const bool is_turned : {false, true}) {
      const auto rows = static_cast<int64_t>(used), depth = static_cast<int64_t>(k);
      // An even k: the left factor is read in place, by pairs.
      const at::Tensor x = at::zeros({13, static_cast<int64_t>(2 * steps)}, at::kBFloat16);
      x.narrow(1, 0, depth).copy_(test::random_f64({13, depth}, 1));
      const at::Tensor w_KN = test::random_f64({depth, rows}, 2).to(at::kBFloat16);
      const at::Tensor stored = is_turned ? w_KN.t().contiguous() : w_KN;
      std::vector<uint32_t> panel(steps * columns);
      cpu::pack(cpu::Arithmetic::kBF16,
                {cpu::Element::kBF16, stored.data_ptr(), is_turned ? 1 : used, is_turned ? k : 1},
                k, used, columns, panel.data());
      const at::Tensor sums = at::ones({13, static_cast<int64_t>(columns)}, at::kFloat);
      cpu::multiply_bf16_tile({13, steps, x.data_ptr(), 4 * steps, 4, panel.data(),
                               sums.data_ptr<float>(), columns, true});
      const at::Tensor exact =
          1 + x.narrow(1, 0, depth).to(at::kDouble).matmul(w_KN.to(at::kDouble));
      EXPECT_LE(distance(sums.narrow(1, 0, rows), exact), 1e-6) << k << " " << is_turned;
      EXPECT_EQ(sums.narrow(1, rows, 3).sum().item<float>(), 39.0f);
    }
  }
}

TEST(Linear, TakesMoreDimensionsAndViewsOfRows) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const at::Tensor x = test::random_f64({2, 3, 24}, 1).to(type);
    const at::Tensor weight = test::random_f64({10, 12}, 2).to(type);
    const at::Tensor part = x.narrow(2, 6, 12);
    EXPECT_TRUE(at::equal(ops::linear(part, weight), ops::linear(part.contiguous(), weight)));
    EXPECT_EQ(ops::linear(part, weight).sizes(), at::IntArrayRef({2, 3, 10}));
    const at::Tensor turned = test::random_f64({12, 10}, 2).to(type).t();
    EXPECT_TRUE(at::equal(ops::linear(part, turned), ops::linear(part, turned.contiguous())));
  }
}

TEST(Linear, ABiasOfAnotherTypeIsRefusedForFewRowsAndMany) {
  const at::Tensor weight = test::random_f64({5, 8}, 1).to(at::kBFloat16),
                   bias = test::random_f64({5}, 2).to(at::kFloat);
  for (const int64_t rows : {1, 100}) {
    const at::Tensor x = test::random_f64({rows, 8}, 3).to(at::kBFloat16);
    EXPECT_THROW(linear(x, weight, bias), ModelError);
    EXPECT_NO_THROW(linear(x, weight, bias.to(at::kBFloat16)));
  }
}

TEST(Linear, OnlyAskedForGradientsAreMade) {
  const at::Tensor x = test::random_f64({4, 6}, 1).to(at::kHalf).requires_grad_(true);
  const at::Tensor weight = test::random_f64({5, 6}, 2).to(at::kHalf);
  ops::linear(x, weight).sum().backward();
  EXPECT_TRUE(x.grad().defined());
  EXPECT_FALSE(weight.grad().defined());
  const at::Tensor leaf = weight.detach().clone().requires_grad_(true);
  ops::linear(x.detach(), leaf).sum().backward();
  EXPECT_TRUE(leaf.grad().defined());
}

TEST(Linear, AnsweringDoesNotStandInTheWayOfTraining) {
  const at::Tensor x = test::random_f64({20, 64}, 1).to(at::kHalf);
  const at::Tensor weight = test::random_f64({300, 64}, 2).to(at::kHalf);
  // A thread of its own: it keeps a buffer from the first product on.
  std::thread([&] {
    {
      const c10::InferenceMode answering;
      ops::linear(x, weight);
    }
    const at::Tensor leaf = weight.clone().requires_grad_(true);
    EXPECT_NO_THROW(ops::linear(x, leaf).sum().backward());
    EXPECT_TRUE(leaf.grad().defined());
  }).join();
}

TEST(Linear, BitsDoNotDependOnTheNumberOfThreads) {
  const int threads = at::get_num_threads();
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    // Tails in every direction, and more steps of k than a tile goes at a time.
    for (const int64_t rows : {203, 7}) {
      const std::vector<at::Tensor> inputs{test::random_f64({rows, 2310}, 1).to(type),
                                           test::random_f64({171, 2310}, 2).to(type),
                                           test::random_f64({171}, 3).to(type)};
      at::set_num_threads(1);
      const auto one = outcome(inputs, type);
      for (const int more : {2, 5}) {
        at::set_num_threads(more);
        const auto many = outcome(inputs, type);
        for (size_t i = 0; i < one.size(); ++i) {
          EXPECT_TRUE(at::equal(one[i], many[i]))
              << c10::toString(type) << ' ' << rows << " rows " << more << ' ' << i;
        }
      }
    }
    at::set_num_threads(threads);
  }
}

TEST(Linear, SeveralWeightsGiveWhatEachGivesAlone) {
  const int threads = at::get_num_threads();
  uint64_t seed = 10;  // each its own: memory that is used again must not hold what is expected
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
    const std::vector<LinearFactor> factors{
        {test::random_f64({131, 700}, 2).to(type), test::random_f64({131}, 3).to(type)},
        {test::random_f64({1, 700}, 4).to(type)},
        {test::random_f64({700, 257}, 5).to(type).t(), test::random_f64({257}, 6).to(type)}};
    for (const int64_t rows : {1, 5, 40}) {  // in one loop, and one after the other
      for (const int used : {1, 3}) {
        at::set_num_threads(used);
        const at::Tensor x = test::random_f64({rows, 700}, seed++).to(type);
        const at::NoGradGuard no_grad;
        const std::vector<at::Tensor> together = linears(x, factors);
        ASSERT_EQ(together.size(), factors.size());
        for (size_t i = 0; i < factors.size(); ++i) {
          EXPECT_TRUE(
              at::equal(together[i], ops::linear(x, factors[i].weight_OI, factors[i].bias_O)))
              << c10::toString(type) << ' ' << rows << " rows, weight " << i;
        }
      }
    }
  }
  at::set_num_threads(threads);
  EXPECT_THROW(linears(at::ones({1, 4}), {{at::ones({3, 4})}, {at::ones({3, 5})}}), ModelError);
}

TEST(Linear, HalvesAreNeverWidenedWhole) {
  if (!cpu::rounds_f16())
    GTEST_SKIP() << "without instructions for it a result in f16 is rounded from one in f32";
  const at::Tensor x = test::random_f64({30, 1024}, 1).to(at::kHalf).requires_grad_(true);
  const at::Tensor weight = (test::random_f64({5000, 1024}, 2)).to(at::kHalf).requires_grad_(true);
  const at::Tensor targets = at::arange(30);
  const auto counter = std::make_shared<test::LargestAllocation>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, counter);
  ops::linear(x, weight).sum().backward();
  ops::linear(x.detach().narrow(0, 0, 1), weight.detach());
  EXPECT_LE(counter->largest, weight.numel() * 2) << "linear";
  EXPECT_GT(counter->largest, 0);
  head_cross_entropy(x, weight.detach(), targets).sum.backward();
  EXPECT_LE(counter->largest, weight.numel() * 2) << "head";
}

}  // namespace
}  // namespace danlu::ops
