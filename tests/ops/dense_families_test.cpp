// What the further dense families need of ops: against formulas written out, finite differences in
// f64, and the composites.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <numbers>
#include <utility>
#include <vector>

#include "finite_differences.h"
#include "ops/activation.h"
#include "ops/attention.h"
#include "ops/cross_entropy.h"
#include "ops/kernels.h"
#include "ops/rms_norm.h"
#include "ops/rotary.h"
#include "ops/token_logprobs.h"

namespace danlu::ops {
namespace dense_families_test {

using test::expect_gradients;
using test::random_f64;
using Function = std::function<at::Tensor(const std::vector<at::Tensor>&)>;

/// The result, then the gradient of every input, in `type`.
std::vector<at::Tensor> with_gradients(Kernels choice, const Function& f,
                                       const std::vector<at::Tensor>& given, at::ScalarType type) {
  set_kernels(choice);
  std::vector<at::Tensor> inputs;
  for (const at::Tensor& input : given)
    inputs.push_back(input.detach().to(type).clone().requires_grad_(true));
  const at::Tensor output = f(inputs);
  const at::Tensor factor = random_f64(output.sizes(), 77).to(output.scalar_type());
  std::vector<at::Tensor> result = torch::autograd::grad({output}, inputs, {factor});
  result.insert(result.begin(), output.detach());
  set_kernels(Kernels::kFused);
  return result;
}

/// By whatever runs in f32 and bf16, against the composite of the same values in f64.
void expect_precise(const Function& f, const std::vector<at::Tensor>& inputs) {
  for (const auto& [type, limit] : {std::pair(at::kFloat, 5e-6), std::pair(at::kBFloat16, 2e-2)}) {
    std::vector<at::Tensor> rounded;
    for (const at::Tensor& input : inputs) rounded.push_back(input.to(type).to(at::kDouble));
    const auto exact = with_gradients(Kernels::kComposite, f, rounded, at::kDouble);
    const auto found = with_gradients(Kernels::kFused, f, rounded, type);
    for (size_t i = 0; i < exact.size(); ++i) {
      EXPECT_EQ(found[i].scalar_type(), type);
      const double largest = std::max(1e-3, exact[i].abs().max().item<double>());
      const double distance = (found[i].to(at::kDouble) - exact[i]).abs().max().item<double>();
      EXPECT_LT(distance / largest, limit) << i << " " << c10::toString(type);
    }
  }
}

TEST(OffsetNorm, MultipliesByTheWeightAndOne) {
  // mean square of (3,4) is 12.5; + eps 12.5 = 25, root 5
  const at::Tensor x = at::tensor({3.0, 4.0}, at::kDouble), w = at::tensor({0.0, 1.0}, at::kDouble);
  EXPECT_TRUE(at::allclose(rms_norm(x, w, 12.5, {}, NormWeight::kLessThanOne),
                           at::tensor({0.6, 1.6}, at::kDouble), 0, 1e-12));
  const auto norm = [](const auto& in) {
    return rms_norm(in[0], in[1], 1e-3, {}, NormWeight::kLessThanOne);
  };
  expect_gradients(norm, {random_f64({3, 2, 5}, 1), random_f64({5}, 2)});
  expect_precise(norm, {random_f64({7, 33}, 1), random_f64({33}, 2)});
}

// In bf16 1 + w would forget what is below 1/256 of w, which moves most products by a step.
TEST(OffsetNorm, KeepsSmallWeightsOfBf16) {
  const at::Tensor x = random_f64({4, 64}, 1).to(at::kBFloat16);
  const at::Tensor w = at::full({64}, 0.0035, at::kDouble).to(at::kBFloat16);
  const at::Tensor y = rms_norm(x, w, 0.0, {}, NormWeight::kLessThanOne);
  const at::Tensor wide = x.to(at::kDouble);
  const at::Tensor exact = wide * wide.square().mean(-1, true).rsqrt() * (1 + w.to(at::kDouble));
  EXPECT_LE((y != exact.to(at::kBFloat16)).sum().item<int64_t>(), 2);
}

TEST(OffsetNorm, PutsItsGradientWhereItIsSummed) {
  const auto main = std::make_shared<MainGrad>();
  main->sum = at::zeros({33}, at::kFloat);
  const at::Tensor x = random_f64({7, 33}, 1).to(at::kFloat).requires_grad_(true);
  const at::Tensor w = random_f64({33}, 2).to(at::kFloat).requires_grad_(true);
  const auto plain =
      torch::autograd::grad({rms_norm(x, w, 1e-6, {}, NormWeight::kLessThanOne).sum()}, {x, w});
  rms_norm(x, w, 1e-6, main, NormWeight::kLessThanOne).sum().backward();
  EXPECT_TRUE(at::equal(main->sum, plain[1]));
  EXPECT_TRUE(at::equal(x.grad(), plain[0]));
  EXPECT_FALSE(w.grad().defined());
}

TEST(GatedActivation, FollowsTheFormulaOfEachKind) {
  const std::vector<double> xs = {-3.0, -0.5, 0.0, 0.7, 4.0};
  const at::Tensor gate = at::tensor(xs, at::kDouble), up = at::tensor({2.0, 3.0, 5.0, 7.0, 11.0});
  const at::Tensor exact = gated_activation(gate, up.to(at::kDouble), Activation::kGelu);
  const at::Tensor tanh = gated_activation(gate, up.to(at::kDouble), Activation::kGeluTanh);
  for (size_t i = 0; i < xs.size(); ++i) {
    const double x = xs[i], by = up[static_cast<int64_t>(i)].item<double>();
    EXPECT_NEAR(exact[static_cast<int64_t>(i)].item<double>(),
                by * x * (1 + std::erf(x / std::numbers::sqrt2)) / 2, 1e-12);
    const double inner = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
    EXPECT_NEAR(tanh[static_cast<int64_t>(i)].item<double>(), by * x * (1 + std::tanh(inner)) / 2,
                1e-12);
  }
}

TEST(GatedActivation, HasTheGradientOfBothFactors) {
  for (const Activation kind : {Activation::kGelu, Activation::kGeluTanh, Activation::kQuickGelu}) {
    const auto f = [&](const auto& in) { return gated_activation(in[0], in[1], kind); };
    expect_gradients(f, {random_f64({4, 3}, 1), random_f64({4, 3}, 2)});
    expect_precise(f, {random_f64({9, 33}, 1), random_f64({9, 33}, 2)});
    // Halves of one matrix, as a joined projection gives them.
    expect_precise(
        [&](const auto& in) {
          return gated_activation(in[0].narrow(1, 0, 16), in[0].narrow(1, 16, 16), kind);
        },
        {random_f64({9, 32}, 3)});
  }
}

/// Each pair by hand.
at::Tensor turned_by_hand(const at::Tensor& x_NQD, const RotaryTable& table) {
  const at::Tensor y = x_NQD.clone();
  const int64_t half = table.cos_NE.size(1);
  for (int64_t n = 0; n < x_NQD.size(0); ++n) {
    for (int64_t q = 0; q < x_NQD.size(1); ++q) {
      for (int64_t j = 0; j < half; ++j) {
        const int64_t a = table.is_pairwise ? 2 * j : j,
                      b = table.is_pairwise ? 2 * j + 1 : j + half;
        const double cos = table.cos_NE[n][j].item<double>(),
                     sin = table.sin_NE[n][j].item<double>();
        const double left = x_NQD[n][q][a].item<double>(), right = x_NQD[n][q][b].item<double>();
        y[n][q][a] = left * cos - right * sin;
        y[n][q][b] = right * cos + left * sin;
      }
    }
  }
  return y;
}

TEST(PartialRotary, TurnsThePairsOfTheFirstDimensionsAlone) {
  for (const bool is_pairwise : {false, true}) {
    for (const int64_t half : {1, 3}) {
      for (const int64_t rest : {0, 1, 4}) {
        RotaryTable table =
            rotary_table(at::arange(4), random_f64({half}, 9).abs().to(at::kFloat), 1.1);
        table.is_pairwise = is_pairwise;
        const at::Tensor x = random_f64({4, 2, 2 * half + rest}, 5);
        const at::Tensor by_hand = turned_by_hand(x, table);
        EXPECT_TRUE(at::allclose(rotary(x, table), by_hand, 0, 1e-12)) << half << rest;
        EXPECT_TRUE(at::allclose(rotary(x.to(at::kFloat), table), by_hand.to(at::kFloat), 0, 1e-6));
        const auto f = [&](const auto& in) { return rotary(in[0], table); };
        expect_gradients(f, {x});
        expect_precise(f, {x});
      }
    }
  }
}

/// Scores, cap and mask of one causal segment whose queries are its last tokens, head by head.
at::Tensor attention_by_hand(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const AttentionOptions& options) {
  const int64_t n = q.size(0), m = k.size(0), group = q.size(1) / k.size(1);
  std::vector<at::Tensor> heads;
  for (int64_t h = 0; h < q.size(1); ++h) {
    std::vector<at::Tensor> rows;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t at = m - n + i;
      int64_t first = options.window > 0 ? std::max<int64_t>(0, at + 1 - options.window) : 0;
      if (options.chunk > 0) first = std::max(first, at / options.chunk * options.chunk);
      const at::Tensor keys = k.narrow(0, first, at + 1 - first).select(1, h / group);
      at::Tensor scores = keys.matmul(q[i][h]) * options.scale;
      if (options.softcap > 0) scores = options.softcap * at::tanh(scores / options.softcap);
      const at::Tensor weights = (scores - at::logsumexp(scores, {0})).exp();
      rows.push_back(weights.matmul(v.narrow(0, first, at + 1 - first).select(1, h / group)));
    }
    heads.push_back(at::stack(rows));
  }
  return at::stack(heads, 1);
}

TEST(CappedAttention, FollowsTheFormulaWithWindowsChunksAndACache) {
  for (const double cap : {0.0, 0.7}) {
    for (const int64_t window : {0, 3}) {
      for (const int64_t chunk : {0, 4}) {
        for (const int64_t before : {0, 1, 6}) {
          const AttentionOptions options{1.3, window, {}, cap, chunk};
          const std::vector<at::Tensor> qkv = {random_f64({9, 4, 6}, 1),
                                               random_f64({9 + before, 2, 6}, 2),
                                               random_f64({9 + before, 2, 5}, 3)};
          const Segments segments{{0, 9}, {0, 9 + before}};
          const auto f = [&](const std::vector<at::Tensor>& in) {
            return attention(in[0], in[1], in[2], segments, options);
          };
          SCOPED_TRACE(testing::Message() << cap << ' ' << window << ' ' << chunk << ' ' << before);
          EXPECT_TRUE(
              at::allclose(f(qkv), attention_by_hand(qkv[0], qkv[1], qkv[2], options), 0, 1e-12));
          if (before < 6) expect_gradients(f, qkv);
          expect_precise(f, qkv);
        }
      }
    }
  }
}

TEST(CappedAttention, KeepsSegmentsApart) {
  const AttentionOptions options{1.3, 0, {}, 0.7, 3};
  const std::vector<at::Tensor> qkv = {random_f64({11, 4, 6}, 1), random_f64({11, 2, 6}, 2),
                                       random_f64({11, 2, 6}, 3)};
  const at::Tensor together = attention(qkv[0], qkv[1], qkv[2], {{0, 4, 11}, {0, 4, 11}}, options);
  std::vector<at::Tensor> apart;
  for (const auto& [begin, count] : {std::pair(0, 4), std::pair(4, 7)}) {
    const auto part = [&](size_t i) { return qkv[i].narrow(0, begin, count); };
    apart.push_back(attention_by_hand(part(0), part(1), part(2), options));
  }
  EXPECT_TRUE(at::allclose(together, at::cat(apart), 0, 1e-12));
}

HeadOptions capped_with_bias(const at::Tensor& bias, double cap, int64_t chunk) {
  HeadOptions options;
  options.softcap = cap;
  options.bias_V = bias;
  options.chunk_tokens = chunk;
  return options;
}

TEST(CappedHead, LossAndGradientsFollowTheFormulaWhateverTheChunk) {
  at::Tensor targets = at::arange(11).remainder(7);
  targets[4] = kIgnoreLabel;
  for (const double cap : {0.0, 1.5}) {
    for (const int64_t chunk : {0, 4}) {
      const auto loss = [&](const std::vector<at::Tensor>& in) {
        return head_cross_entropy(in[0], in[1], targets, capped_with_bias(in[2], cap, chunk))
            .sum.to(in[0].scalar_type());
      };
      const std::vector<at::Tensor> inputs = {random_f64({11, 5}, 1), random_f64({7, 5}, 2),
                                              random_f64({7}, 3)};
      at::Tensor logits = inputs[0].matmul(inputs[1].t()) + inputs[2];
      if (cap > 0) logits = cap * at::tanh(logits / cap);
      double sum = 0;
      for (int64_t i = 0; i < 11; ++i) {
        if (i == 4) continue;
        sum +=
            (at::logsumexp(logits[i], {0}) - logits[i][targets[i].item<int64_t>()]).item<double>();
      }
      EXPECT_NEAR(loss(inputs).item<double>(), sum, 1e-10);
      expect_gradients(loss, inputs);
      expect_precise(loss, inputs);
    }
  }
}

TEST(CappedHead, TokenLogprobsHaveTheSameLogits) {
  const at::Tensor rows = at::tensor({0, 3, 3, 5}, at::kLong),
                   ids = at::tensor({1, 6, 0, 2}, at::kLong);
  for (const double cap : {0.0, 1.5}) {
    for (const int64_t chunk : {0, 2}) {
      const auto logprobs = [&](const std::vector<at::Tensor>& in) {
        return head_token_logprobs(in[0], in[1], rows, ids, capped_with_bias(in[2], cap, chunk))
            .logprobs_M.to(in[0].scalar_type());
      };
      const std::vector<at::Tensor> inputs = {random_f64({6, 5}, 1), random_f64({7, 5}, 2),
                                              random_f64({7}, 3)};
      at::Tensor logits = inputs[0].matmul(inputs[1].t()) + inputs[2];
      if (cap > 0) logits = cap * at::tanh(logits / cap);
      const at::Tensor found = logprobs(inputs);
      for (int64_t i = 0; i < 4; ++i) {
        const at::Tensor row = logits[rows[i].item<int64_t>()];
        EXPECT_NEAR(found[i].item<double>(),
                    (row[ids[i].item<int64_t>()] - at::logsumexp(row, {0})).item<double>(), 1e-10);
      }
      expect_gradients(logprobs, inputs);
    }
  }
}

TEST(CappedHead, TheBiasesGradientGoesWhereItIsSummed) {
  const at::Tensor targets = at::arange(11).remainder(7);
  const auto make = [](at::IntArrayRef sizes, uint64_t seed) {
    return random_f64(sizes, seed).to(at::kFloat).requires_grad_(true);
  };
  const at::Tensor hidden = make({11, 5}, 1), weight = make({7, 5}, 2), bias = make({7}, 3);
  HeadOptions options = capped_with_bias(bias, 1.5, 4);
  const auto plain = torch::autograd::grad(
      {head_cross_entropy(hidden, weight, targets, options).sum}, {hidden, weight, bias});
  const auto main = std::make_shared<MainGrad>();
  main->sum = at::zeros({7}, at::kFloat);
  options.bias_main = main;
  head_cross_entropy(hidden, weight, targets, options).sum.backward();
  EXPECT_TRUE(at::allclose(main->sum, plain[2], 1e-6, 1e-7));
  EXPECT_FALSE(bias.grad().defined());
}

}  // namespace dense_families_test
}  // namespace danlu::ops
