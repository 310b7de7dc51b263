// Adapters, recomputation and layouts of single layers.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <optional>
#include <tuple>

#include "../ops/finite_differences.h"
#include "../ops/made_nf4.h"
#include "layers/adapter_runs.h"
#include "layers/attention.h"
#include "layers/linear.h"
#include "layers/mlp.h"
#include "layers/recompute.h"
#include "layers/saved_tensors.h"

namespace danlu::layers {
namespace {

using test::expect_gradients;
using test::random_f64;

LoraAdapter adapter(const std::vector<at::Tensor>& in, bool dora) {
  LoraAdapter result;
  result.a_RI = parallel::whole_parameter("a", in[0]);
  result.b_OR = parallel::whole_parameter("b", in[1]);
  if (dora) result.magnitude_O = parallel::whole_parameter("magnitude", in[2]);
  result.scale = 1.7;
  return result;
}

enum class Kind { kDense, kQuantised, kAdapted };

Linear linear_of(Kind kind, int64_t rows, bool has_bias) {
  const auto seed = static_cast<uint64_t>(rows);
  Linear linear;
  linear.weight = parallel::whole_parameter("w", random_f64({rows, 64}, seed).to(at::kFloat) * 0.1);
  if (has_bias)
    linear.bias = parallel::whole_parameter("b", random_f64({rows}, seed + 1).to(at::kFloat));
  if (kind == Kind::kQuantised)
    linear.weight.quantized = ops::quantized(BlockType::kQ8_0, linear.weight.tensor, "w");
  if (kind == Kind::kAdapted) {
    linear.adapter = adapter({random_f64({2, 64}, seed + 2).to(at::kFloat),
                              random_f64({rows, 2}, seed + 3).to(at::kFloat)},
                             false);
  }
  return linear;
}

TEST(ForwardEach, IsForwardOfEachWhateverTheyHold) {
  using enum Kind;
  const at::NoGradGuard no_grad;
  for (const auto& [q, k, v] : {std::tuple(kDense, kDense, kDense),
                                {kQuantised, kQuantised, kQuantised},
                                {kDense, kQuantised, kDense},
                                {kAdapted, kDense, kDense},
                                {kQuantised, kQuantised, kAdapted}}) {
    for (const int64_t n : {1, 3, 40}) {
      const std::vector<Linear> linears{linear_of(q, 96, true), linear_of(k, 32, false),
                                        linear_of(v, 33, true)};
      const at::Tensor x = random_f64({n, 64}, 9).to(at::kFloat);
      const auto results = forward_each({&linears[0], &linears[1], &linears[2]}, x, {});
      ASSERT_EQ(results.size(), 3u);
      for (size_t i = 0; i < 3; ++i)
        EXPECT_TRUE(at::allclose(results[i], linears[i].forward(x, {}), 1e-6, 1e-6))
            << n << ' ' << i;
    }
  }
}

// A policy with new adapters is its reference to the bit, whatever its type: the base's product is
// rounded with its bias.
TEST(AdaptedLinear, AnAdapterThatAddsNothingChangesNoBit) {
  for (const Kind kind : {Kind::kAdapted, Kind::kQuantised}) {
    Linear linear = linear_of(kind, 24, true);
    for (parallel::Parameter* part : {&linear.weight, &linear.bias})
      part->tensor = part->tensor.to(at::kBFloat16);
    const at::Tensor x = random_f64({40, 64}, 9).to(at::kBFloat16);
    Pass without;
    without.adapters = false;
    const at::Tensor plain = linear.forward(x, without);
    linear.adapter = adapter(
        {random_f64({2, 64}, 3).to(at::kBFloat16), at::zeros({24, 2}, at::kBFloat16)}, false);
    EXPECT_TRUE(at::equal(linear.forward(x, {}), plain));
    linear.adapter->b_OR.tensor.fill_(0.5);
    EXPECT_FALSE(at::equal(linear.forward(x, {}), plain));
  }
}

/// W + s B A, with DoRA its rows stretched to the magnitude: the papers' formulas.
at::Tensor merged_by_formula(const at::Tensor& weight, const LoraAdapter& lora) {
  const at::Tensor sum = weight + 1.7 * at::mm(lora.b_OR.tensor, lora.a_RI.tensor);
  if (!lora.magnitude_O.defined()) return sum;
  return sum * (lora.magnitude_O.tensor / sum.square().sum(1).sqrt()).unsqueeze(1);
}

TEST(AdaptedLinear, IsALinearLayerOfTheMergedWeight) {
  const at::Tensor x = random_f64({4, 5}, 1), weight = random_f64({3, 5}, 2);
  for (const bool dora : {false, true}) {
    const LoraAdapter lora =
        adapter({random_f64({2, 5}, 3), random_f64({3, 2}, 4), random_f64({3}, 5)}, dora);
    const at::Tensor expected = at::mm(x, merged_by_formula(weight, lora).t());
    EXPECT_TRUE(at::allclose(adapted_linear(x, {weight}, lora), expected, 1e-10, 1e-12)) << dora;
  }
}

TEST(AdaptedLinear, OneThatAddsNothingChangesNoBit) {
  const at::NoGradGuard no_grad;
  const at::Tensor x = random_f64({40, 64}, 9).to(at::kBFloat16);
  for (const bool is_nf4 : {false, true}) {
    Linear linear = linear_of(Kind::kDense, 96, true);
    for (Parameter* const one : {&linear.weight, &linear.bias})
      one->tensor = one->tensor.to(at::kBFloat16);
    if (is_nf4)
      linear.weight.quantized =
          std::make_shared<ops::Nf4Weight>(test::made_nf4(linear.weight.tensor, {}));
    const at::Tensor alone = linear.forward(x, {});
    LoraAdapter nothing = adapter(
        {random_f64({2, 64}, 3).to(at::kBFloat16), at::zeros({96, 2}, at::kBFloat16)}, false);
    AdapterSet beside;
    beside.of[&linear] = nothing;
    Pass of_runs;
    append_run(of_runs.adapter_runs, nullptr, 15);
    append_run(of_runs.adapter_runs, &beside, 25);
    EXPECT_TRUE(at::equal(linear.forward(x, of_runs), alone)) << is_nf4;
    linear.adapter = nothing;
    EXPECT_TRUE(at::equal(linear.forward(x, {}), alone)) << is_nf4;
  }
}

TEST(AdaptedLinear, TheBiasIsAddedOnceWithAdaptersOfEveryKind) {
  const at::NoGradGuard no_grad;
  const at::Tensor x = random_f64({40, 64}, 9).to(at::kFloat);
  for (const bool dora : {false, true}) {
    Linear linear = linear_of(Kind::kDense, 96, true);
    const LoraAdapter lora =
        adapter({random_f64({2, 64}, 3).to(at::kFloat), random_f64({96, 2}, 4).to(at::kFloat),
                 random_f64({96}, 5).to(at::kFloat)},
                dora);
    const at::Tensor expected =
        at::mm(x, merged_by_formula(linear.weight.tensor, lora).t()) + linear.bias.tensor;
    AdapterSet beside;
    beside.of[&linear] = lora;
    Pass of_runs;
    append_run(of_runs.adapter_runs, nullptr, 15);
    append_run(of_runs.adapter_runs, &beside, 25);
    const at::Tensor of_two = linear.forward(x, of_runs);
    EXPECT_TRUE(at::allclose(of_two.narrow(0, 15, 25), expected.narrow(0, 15, 25), 1e-4, 1e-4));
    EXPECT_TRUE(
        at::allclose(of_two.narrow(0, 0, 15), linear.forward(x, {}).narrow(0, 0, 15), 1e-5, 1e-5));
    linear.adapter = lora;
    EXPECT_TRUE(at::allclose(linear.forward(x, {}), expected, 1e-4, 1e-4)) << dora;
  }
}

TEST(AdaptedLinear, DorasRowsGetTheLengthOfTheMagnitude) {
  const LoraAdapter lora = adapter(
      {random_f64({2, 5}, 3), random_f64({3, 2}, 4), at::tensor({1.0, 2.0, 3.0}, at::kDouble)},
      true);
  const at::Tensor merged =
      adapted_linear(at::eye(5, at::kDouble), {random_f64({3, 5}, 2)}, lora).t();
  EXPECT_TRUE(at::allclose(at::norm(merged, 2, {1}), lora.magnitude_O.tensor));
}

TEST(AdaptedLinear, ARowOfZerosStaysOneUnderDora) {
  at::Tensor weight = random_f64({3, 5}, 2), b = at::zeros({3, 2}, at::kDouble);
  weight[1].zero_();
  const at::Tensor magnitude = at::norm(weight, 2, {1}).requires_grad_(), x = random_f64({4, 5}, 1);
  const LoraAdapter lora = adapter({random_f64({2, 5}, 3), b, magnitude}, true);
  const at::Tensor out = adapted_linear(x, {weight}, lora);
  out.square().sum().backward();
  EXPECT_TRUE(at::isfinite(out).all().item<bool>());
  EXPECT_TRUE(at::isfinite(magnitude.grad()).all().item<bool>());
  EXPECT_TRUE(at::equal(out.select(1, 1), at::zeros({4}, at::kDouble)));
}

TEST(AdaptedLinear, GradientsMatchFiniteDifferences) {
  const at::Tensor weight = random_f64({3, 5}, 2);
  expect_gradients(
      [&](const auto& in) {
        return adapted_linear(in[2], {weight}, adapter({in[0], in[1]}, false));
      },
      {random_f64({2, 5}, 3), random_f64({3, 2}, 4), random_f64({4, 5}, 1)});
  // DoRA's gradients of A and B treat the row length as a constant, so only x and the magnitude are
  // plain derivatives.
  const at::Tensor a = random_f64({2, 5}, 3), b = random_f64({3, 2}, 4);
  expect_gradients(
      [&](const auto& in) { return adapted_linear(in[0], {weight}, adapter({a, b, in[1]}, true)); },
      {random_f64({4, 5}, 1), random_f64({3}, 5)});
}

TEST(AdaptedLinear, DoraTakesTheRowLengthAsConstant) {
  const at::Tensor x = random_f64({4, 5}, 1), weight = random_f64({3, 5}, 2),
                   magnitude = random_f64({3}, 5);
  const at::Tensor a = random_f64({2, 5}, 3), b = random_f64({3, 2}, 4);
  const at::Tensor length = row_lengths(weight, adapter({a, b}, false));
  const at::Tensor leaf_a = a.clone().requires_grad_(true), leaf_b = b.clone().requires_grad_(true);
  const auto ours = torch::autograd::grad(
      {adapted_linear(x, {weight}, adapter({leaf_a, leaf_b, magnitude}, true)).square().sum()},
      {leaf_a, leaf_b});
  const at::Tensor written =
      (at::mm(x, weight.t()) + 1.7 * at::mm(at::mm(x, leaf_a.t()), leaf_b.t())) *
      (magnitude / length);
  const auto expected = torch::autograd::grad({written.square().sum()}, {leaf_a, leaf_b});
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(at::allclose(ours[i], expected[i], 1e-9, 1e-10));
}

TEST(Recompute, GivesTheGradientsOfThePlainBody) {
  const at::Tensor weight = random_f64({3, 3}, 1).requires_grad_(true);
  const Body body = [&](const std::vector<at::Tensor>& in) {
    return at::tanh(at::mm(in[0], weight)) * in[1];
  };
  const at::Tensor x = random_f64({2, 3}, 2).requires_grad_(true),
                   y = random_f64({2, 3}, 3).requires_grad_(true);
  const auto plain = torch::autograd::grad({body({x, y}).sum()}, {x, y, weight});
  const auto again =
      torch::autograd::grad({recomputed(body, {x, y}, {weight}).sum()}, {x, y, weight});
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(at::equal(plain[i], again[i])) << i;
}

TEST(Recompute, RunsTheBodyAgainAndOnlyInBackward) {
  int runs = 0;
  const at::Tensor x = random_f64({2}, 1).requires_grad_(true), frozen = random_f64({2}, 2);
  const Body body = [&](const std::vector<at::Tensor>& in) {
    ++runs;
    return in[0] * in[0] * in[1];
  };
  const at::Tensor out = recomputed(body, {x, frozen}, {});
  EXPECT_EQ(runs, 1);
  EXPECT_TRUE(torch::autograd::grad({out.sum()}, {x})[0].defined());
  EXPECT_EQ(runs, 2);
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(recomputed(body, {x, frozen}, {}).requires_grad());
  EXPECT_EQ(runs, 3);
}

TEST(MadeAgain, IsWhatOperatorsSavedOfItAndItsViews) {
  const at::Tensor x = random_f64({2, 3}, 1).requires_grad_(true), y = random_f64({3, 2}, 2);
  int runs = 0;
  const Make make = [&](const std::vector<at::Tensor>& sources) {
    ++runs;
    return at::tanh(sources[0]);
  };
  const auto gradient = [&](bool again) {
    const at::Tensor out = make({x});
    std::optional<MadeAgain> scope;
    if (again) scope.emplace(out, std::vector<at::Tensor>{x}, make);
    // Products save it as it is, transposed, and in part.
    const at::Tensor weight = y.clone().requires_grad_(true);
    const at::Tensor sum = at::mm(out, weight).sum() + at::mm(out.t(), weight.t()).square().sum() +
                           at::mm(out.narrow(1, 1, 2), weight.narrow(0, 0, 2)).sum();
    return torch::autograd::grad({sum}, {x, weight});
  };
  const auto plain = gradient(false);
  EXPECT_EQ(runs, 1);
  const auto again = gradient(true);
  EXPECT_EQ(runs, 3) << "once for all that saved it";
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(at::equal(plain[i], again[i])) << i;
}

TEST(MadeAgain, IsNotKept) {
  const at::Tensor x = random_f64({2, 3}, 1).requires_grad_(true);
  const Make make = [](const std::vector<at::Tensor>& sources) { return sources[0] * 2; };
  for (const bool again : {false, true}) {
    at::Tensor out = make({x});
    at::Tensor sum;
    {
      std::optional<MadeAgain> scope;
      if (again) scope.emplace(out, std::vector<at::Tensor>{x}, make);
      sum = out.square().sum();
    }
    const bool is_kept = out.use_count() > 1 || out.storage().use_count() > 1;
    EXPECT_EQ(is_kept, !again);
    EXPECT_TRUE(at::equal(torch::autograd::grad({sum}, {x})[0], 8 * x));
  }
}

Linear plain_linear(const at::Tensor& weight) {
  Linear linear;
  linear.weight = parallel::whole_parameter("w", weight);
  return linear;
}

TEST(Attention, FusedLayoutsEqualSeparateProjections) {
  // 4 heads of width 2 in 2 groups, hidden 8.
  const at::Tensor q = random_f64({8, 8}, 1), k = random_f64({4, 8}, 2), v = random_f64({4, 8}, 3),
                   o = random_f64({8, 8}, 4);
  const at::Tensor x = random_f64({5, 8}, 5);
  Pass pass;
  pass.segments = {{0, 2, 5}, {0, 2, 5}};
  const auto make = [&] {
    Attention attention;
    attention.num_heads = 4;
    attention.num_kv_heads = 2;
    attention.head_dim = 2;
    attention.options.scale = 0.5;
    attention.o = plain_linear(o);
    return attention;
  };
  Attention separate = make(), thirds = make(), interleaved = make();
  separate.q = plain_linear(q);
  separate.k = plain_linear(k);
  separate.v = plain_linear(v);
  thirds.qkv_layout = arch::QkvLayout::kThirds;
  thirds.qkv = plain_linear(at::cat({q, k, v}));
  const auto rows = [](const at::Tensor& w, int64_t begin, int64_t count) {
    return w.narrow(0, begin, count);
  };
  interleaved.qkv = plain_linear(at::cat(
      {rows(q, 0, 4), rows(k, 0, 2), rows(v, 0, 2), rows(q, 4, 4), rows(k, 2, 2), rows(v, 2, 2)}));
  interleaved.qkv_layout = arch::QkvLayout::kInterleaved;
  const at::Tensor expected = separate.forward(x, pass);
  EXPECT_TRUE(at::allclose(thirds.forward(x, pass), expected, 1e-10, 1e-12));
  EXPECT_TRUE(at::allclose(interleaved.forward(x, pass), expected, 1e-10, 1e-12));
}

}  // namespace
}  // namespace danlu::layers
