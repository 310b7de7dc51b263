// Fused CPU kernels against the composites that define the ops, forward and backward. (The
// composites themselves meet finite differences in f64.)
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <limits>
#include <vector>

#include "finite_differences.h"
#include "largest_allocation.h"
#include "ops/alibi.h"
#include "ops/attention.h"
#include "ops/backend.h"
#include "ops/cross_entropy.h"
#include "ops/kernels.h"
#include "ops/rms_norm.h"
#include "ops/rotary.h"
#include "ops/swiglu.h"

namespace danlu::ops {
namespace {

using FusedFunction = std::function<at::Tensor(const std::vector<at::Tensor>&)>;

/// The result, then the gradient of every input.
std::vector<at::Tensor> run_with_gradients(Kernels choice, const FusedFunction& f,
                                           std::vector<at::Tensor> inputs) {
  set_kernels(choice);
  for (at::Tensor& input : inputs) input = input.detach().clone().requires_grad_(true);
  const at::Tensor output = f(inputs);
  const at::Tensor factor = test::random_f64(output.sizes(), 77).to(output.scalar_type());
  std::vector<at::Tensor> result = torch::autograd::grad({output}, inputs, {factor});
  result.insert(result.begin(), output.detach());
  set_kernels(Kernels::kFused);
  return result;
}

/// Distance relative to the largest value.
double relative_distance(const at::Tensor& got, const at::Tensor& expected) {
  if (got.numel() == 0) return 0;
  const at::Tensor wide = expected.to(at::kDouble);
  // What is nothing in truth is measured against the inputs, which are about 1.
  const double found = wide.abs().max().item<double>();
  const double largest = found < 1e-9 ? 1.0 : found;
  const double distance = (got.to(at::kDouble) - wide).abs().max().item<double>();
  return std::isfinite(distance) ? distance / largest : std::numeric_limits<double>::infinity();
}

/// f32, bf16 and f16 inputs: the composite of the same values in f64 is the truth. f16 has three
/// bits more than bf16.
void expect_fused_agrees(const FusedFunction& f, const std::vector<at::Tensor>& f64_inputs,
                         const std::string& what, double f32_limit = 5e-6,
                         double bf16_limit = 0.02) {
  for (const auto& [type, limit] :
       {std::pair{at::kFloat, f32_limit}, std::pair{at::kBFloat16, bf16_limit},
        std::pair{at::kHalf, bf16_limit / 8}}) {
    std::vector<at::Tensor> inputs, exact;
    for (const at::Tensor& input : f64_inputs) {
      inputs.push_back(input.to(type));
      exact.push_back(inputs.back().to(at::kDouble));
    }
    const auto got = run_with_gradients(Kernels::kFused, f, inputs);
    const auto truth = run_with_gradients(Kernels::kComposite, f, exact);
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].scalar_type(), type) << what;
      EXPECT_LE(relative_distance(got[i], truth[i]), limit)
          << what << ", " << c10::toString(type) << ", "
          << (i == 0 ? "result" : "gradient of input " + std::to_string(i - 1));
    }
  }
}

TEST(FusedCpu, RmsNormAgreesAtEveryWidth) {
  for (const int64_t width : {1, 7, 16, 64, 100, 771}) {
    for (const int64_t rows : {1, 3, 130}) {
      expect_fused_agrees([](const auto& in) { return rms_norm(in[0], in[1], 0.05); },
                          {test::random_f64({rows, width}, 1), test::random_f64({width}, 2)},
                          "width " + std::to_string(width) + ", rows " + std::to_string(rows));
    }
  }
  expect_fused_agrees([](const auto& in) { return rms_norm(in[0], in[1], 0.05); },
                      {test::random_f64({5, 3, 24}, 1), test::random_f64({24}, 2)}, "three dims");
}

TEST(FusedCpu, SwigluAgreesAndStaysFiniteAtExtremes) {
  for (const int64_t count : {1, 15, 16, 33, 5000, 40000}) {
    expect_fused_agrees([](const auto& in) { return swiglu(in[0], in[1]); },
                        {test::random_f64({count}, 3) * 4, test::random_f64({count}, 4)},
                        "count " + std::to_string(count));
  }
  const at::Tensor gate = at::tensor({-200.0f, 200.0f, 0.0f, -88.0f, -1e30f});
  EXPECT_TRUE(at::allclose(swiglu(gate, at::ones_like(gate)),
                           oracle::swiglu(gate, at::ones_like(gate)), 1e-6, 1e-30));
}

TEST(FusedCpu, ASumWithoutAGraphIsTheCompositesBitForBit) {
  const at::NoGradGuard no_grad;
  const float infinity = std::numeric_limits<float>::infinity();
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
    for (const int64_t count : {0, 1, 15, 16, 33, 40000}) {
      const at::Tensor a = test::random_f64({count}, 3).to(type),
                       b = test::random_f64({count}, 4).to(type);
      EXPECT_TRUE(at::equal(add(a, b), a + b)) << c10::toString(type) << ' ' << count;
    }
    const at::Tensor a = test::random_f64({5, 7}, 3).to(type);
    EXPECT_TRUE(at::equal(add(a.t(), a.t()), a.t() + a.t())) << c10::toString(type);
    const at::Tensor ends = at::tensor({infinity, -infinity, infinity}).to(type);
    const at::Tensor sums = add(ends, at::tensor({1.0f, 1.0f, -infinity}).to(type));
    EXPECT_EQ(sums[0].item<double>(), infinity);
    EXPECT_EQ(sums[1].item<double>(), -infinity);
    EXPECT_TRUE(std::isnan(sums[2].item<double>()));
  }
}

TEST(FusedCpu, RotaryAgrees) {
  for (const int64_t half : {1, 3, 16, 33}) {
    const RotaryTable table =
        rotary_table(at::arange(20) * 3, at::rand({half}, at::kFloat).add_(0.1), 1.2);
    expect_fused_agrees([&](const auto& in) { return rotary(in[0], table); },
                        {test::random_f64({20, 3, 2 * half}, 5)}, "half " + std::to_string(half));
  }
}

TEST(FusedCpu, HeadCrossEntropyAgreesWithAndWithoutZLoss) {
  for (const int64_t vocab : {2, 17, 64, 1003}) {
    for (const double z_loss : {0.0, 0.01}) {
      for (const int64_t chunk : {0, 4}) {
        at::Tensor targets = at::arange(11).remainder(vocab);
        targets[4] = kIgnoreLabel;
        HeadOptions options;
        options.z_loss_weight = z_loss;
        options.chunk_tokens = chunk;
        const auto loss = [&](const std::vector<at::Tensor>& in) {
          return head_cross_entropy(in[0], in[1], targets, options).sum.to(in[0].scalar_type());
        };
        expect_fused_agrees(loss, {test::random_f64({11, 12}, 6), test::random_f64({vocab, 12}, 7)},
                            "vocab " + std::to_string(vocab) + ", z " + std::to_string(z_loss) +
                                ", chunk " + std::to_string(chunk),
                            5e-6, 0.03);
      }
    }
  }
}

TEST(FusedCpu, HeadCrossEntropyCountsCorrectTokensAndScalesGradients) {
  const at::Tensor hidden = test::random_f64({9, 8}, 1).to(at::kFloat).requires_grad_(true);
  const at::Tensor weight = test::random_f64({30, 8}, 2).to(at::kFloat);
  const at::Tensor targets = at::mm(hidden.detach(), weight.t()).argmax(1);
  HeadOptions scaled;
  scaled.grad_scale = 1024;
  const CrossEntropy loss = head_cross_entropy(hidden, weight, targets, scaled);
  EXPECT_EQ(loss.num_correct.item<int64_t>(), 9);
  const at::Tensor grad =
      torch::autograd::grad({loss.sum}, {hidden}, {at::full({}, 1024.0f)})[0] / 1024;
  const at::Tensor plain =
      torch::autograd::grad({head_cross_entropy(hidden, weight, targets).sum}, {hidden})[0];
  EXPECT_TRUE(at::allclose(grad, plain, 1e-6, 1e-7));
}

struct AttentionCase {
  std::string name;
  int64_t heads, kv_heads, head_dim;
  Segments segments;
  int64_t window = 0;
  bool alibi = false;
};

Segments segments_of(int64_t count, int64_t length) {
  Segments segments{{0}, {0}};
  for (int64_t i = 1; i <= count; ++i) {
    segments.q_starts.push_back(i * length);
    segments.k_starts.push_back(i * length);
  }
  return segments;
}

TEST(FusedCpu, AttentionAgreesForEveryKindOfMask) {
  const std::vector<AttentionCase> cases{
      {"one token", 2, 2, 8, {{0, 1}, {0, 1}}},
      {"odd length", 4, 2, 10, {{0, 37}, {0, 37}}},
      {"several segments, one empty", 6, 2, 16, {{0, 5, 5, 55, 56}, {0, 5, 5, 55, 56}}},
      {"more keys than queries", 4, 1, 24, {{0, 20, 31}, {0, 33, 60}}},
      {"window", 4, 4, 16, {{0, 70, 150}, {0, 70, 150}}, 9},
      {"window wider than the text", 2, 1, 8, {{0, 30}, {0, 30}}, 64},
      {"alibi", 6, 3, 20, {{0, 60, 75}, {0, 60, 75}}, 0, true},
      {"more keys than a block", 2, 1, 8, {{0, 600}, {0, 600}}},
      // 5 parts of 7 heads, and groups that are enough without parts.
      {"some heads of a group together", 7, 1, 8, segments_of(13, 5)},
      {"whole groups", 4, 2, 8, segments_of(40, 3)},
      {"a long segment beside short ones",
       6,
       1,
       8,
       {{0, 2, 4, 304, 307, 308}, {0, 2, 4, 304, 307, 308}}},
  };
  for (const AttentionCase& c : cases) {
    AttentionOptions options;
    options.scale = 1.0 / std::sqrt(static_cast<double>(c.head_dim));
    options.window = c.window;
    if (c.alibi) options.alibi_slopes_Q = at::tensor(alibi_slopes(c.heads), at::kFloat);
    const int64_t queries = c.segments.q_starts.back(), keys = c.segments.k_starts.back();
    expect_fused_agrees(
        [&](const auto& in) { return attention(in[0], in[1], in[2], c.segments, options); },
        {test::random_f64({queries, c.heads, c.head_dim}, 1) * 2,
         test::random_f64({keys, c.kv_heads, c.head_dim}, 2) * 2,
         test::random_f64({keys, c.kv_heads, c.head_dim}, 3)},
        c.name);
  }
}

TEST(FusedCpu, AttentionTakesViewsOfAFusedProjection) {
  const Segments segments{{0, 19}, {0, 19}};
  const AttentionOptions options{0.3, 0, {}};
  expect_fused_agrees(
      [&](const auto& in) {
        const auto parts = in[0].split_with_sizes({4, 2, 2}, 1);
        return attention(parts[0], parts[1], parts[2], segments, options);
      },
      {test::random_f64({19, 8, 12}, 4)}, "thirds");
}

TEST(FusedCpu, NonFiniteNumbersReachTheResult) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const auto with_nan = [&](at::IntArrayRef sizes) {
      at::Tensor x = test::random_f64(sizes, 8).to(type);
      x.view({-1})[3].fill_(nan);
      return x;
    };
    const auto spoiled = [](const at::Tensor& y) { return y.isnan().any().item<bool>(); };
    const at::Tensor good = test::random_f64({20, 2, 18}, 9).to(type);
    EXPECT_TRUE(spoiled(rms_norm(with_nan({2, 18}), good[0][0], 1e-5)));
    EXPECT_TRUE(spoiled(swiglu(with_nan({40}), at::ones({40}, type))));
    EXPECT_TRUE(spoiled(attention(with_nan({20, 2, 18}), good, good, {{0, 20}, {0, 20}}, {})));
    EXPECT_TRUE(spoiled(attention(good, good, with_nan({20, 2, 18}), {{0, 20}, {0, 20}}, {})));
    EXPECT_TRUE(spoiled(attention(good, with_nan({20, 2, 18}), good, {{0, 20}, {0, 20}}, {})));
    const at::Tensor weight = test::random_f64({37, 18}, 10).to(type);
    // One logit that is neither the target nor the largest, in a whole vector and in the tail.
    for (const int64_t row : {5, 36}) {
      at::Tensor bad_row = weight.clone();
      bad_row[row][0].fill_(nan);
      EXPECT_TRUE(spoiled(head_cross_entropy(good[0], bad_row, at::zeros({2}, at::kLong)).sum));
    }
    EXPECT_TRUE(
        spoiled(head_cross_entropy(with_nan({4, 18}), weight, at::zeros({4}, at::kLong)).sum));
  }
}

TEST(FusedCpu, ResultsDoNotDependOnTheNumberOfThreads) {
  const Segments segments{{0, 90, 93, 97, 130}, {0, 90, 93, 97, 130}};
  const auto everything = [&](const std::vector<at::Tensor>& in) {
    const at::Tensor x = rms_norm(in[0], in[1], 0.05);
    const at::Tensor keys = x.narrow(1, 0, 1), values = swiglu(x, in[0]).narrow(1, 0, 1);
    const at::Tensor seen = attention(x, keys, values, segments, {0.25, 0, {}});
    return head_cross_entropy(seen.reshape({130, 64}), in[2], at::arange(130).remainder(50)).sum;
  };
  const std::vector<at::Tensor> inputs{test::random_f64({130, 4, 16}, 1).to(at::kFloat),
                                       test::random_f64({16}, 2).to(at::kFloat),
                                       test::random_f64({50, 64}, 3).to(at::kFloat)};
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const auto one = run_with_gradients(Kernels::kFused, everything, inputs);
  at::set_num_threads(4);
  const auto four = run_with_gradients(Kernels::kFused, everything, inputs);
  at::set_num_threads(threads);
  for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(at::equal(four[i], one[i])) << i;
}

/// A pack of one long sample and many short ones: blocks of keys are as long as the samples.
TEST(FusedCpu, PackedKeysOfShortSamplesTakeLittleMemory) {
  Segments segments{{0, 256}, {0, 256}};
  for (int64_t end = 266; end <= 1046; end += 10) {
    segments.q_starts.push_back(end);
    segments.k_starts.push_back(end);
  }
  const auto heads = [](int64_t count, uint64_t seed) {
    return test::random_f64({1046, count, 64}, seed).to(at::kBFloat16);
  };
  const at::Tensor q = heads(8, 1), k = heads(4, 2), v = heads(4, 3);
  const auto counter = std::make_shared<test::LargestAllocation>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, counter);
  attention(q, k, v, segments, {0.125, 0, {}});
  // Panels have a row for each of up to 64 keys, and numbers may be widened.
  EXPECT_LE(counter->largest, static_cast<int64_t>(12 * k.nbytes()));
  EXPECT_GT(counter->largest, 0);
}

/// ATen divides the columns of a sum this long among threads.
TEST(FusedCpu, GradientsOfLongSumsDoNotDependOnTheNumberOfThreads) {
  const auto random = [](at::IntArrayRef sizes, uint64_t seed) {
    return test::random_f64(sizes, seed).to(at::kFloat);
  };
  const at::Tensor x = random({2048, 2048}, 1), dy = random({2048, 2048}, 2),
                   weight = random({2048}, 3), y = random({1001, 2080}, 4),
                   d_y = random({1001, 2080}, 5), squares = random({2080}, 6).abs();
  const Backend& backend = completed_backend(at::kCPU);
  const auto everything = [&] {
    const NormResult norm = backend.rms_norm(x, weight, 1e-5);
    return std::vector<at::Tensor>{
        backend.rms_norm_backward(x, weight, norm.rstd, dy, false, true).weight_D,
        backend.stretch_grad(d_y, y, squares)};
  };
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const auto one = everything();
  for (const int more : {2, 3, 5}) {
    at::set_num_threads(more);
    const auto several = everything();
    for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(at::equal(several[i], one[i])) << i;
  }
  at::set_num_threads(threads);
}

/// What has no autograd, of sizes that threads and vectors do not divide; some of it is ATen's.
TEST(FusedCpu, WhatIsBesideTheGraphDoesNotDependOnThemEither) {
  const auto everything = [](int64_t tokens, int64_t width) {
    const auto random = [](at::IntArrayRef sizes, uint64_t seed) {
      return test::random_f64(sizes, seed).to(at::kFloat);
    };
    const at::Tensor positions = at::arange(tokens).remainder(301);
    const RotaryTable table = rotary_table(positions, random({width}, 1).abs(), 1.25);
    const Backend& backend = completed_backend(at::kCPU);
    at::Tensor rows = at::zeros({40, width}, at::kFloat);
    backend.add_rows(rows, positions.remainder(40), random({tokens, width}, 2));
    return std::vector<at::Tensor>{
        table.cos_NE,
        table.sin_NE,
        rows,
        backend.column_sums(random({tokens, width}, 3)),
        attention_delta(random({tokens, 7, width}, 4), random({tokens, 7, width}, 5)),
        backend.norm_head(random({tokens, width}, 6)).y_VH,
        linear(random({5, width}, 7), random({tokens, width}, 8)),
        linear(random({5, width}, 7).to(at::kBFloat16),
               random({tokens, width}, 8).to(at::kBFloat16))};
  };
  const int threads = at::get_num_threads();
  for (const int64_t tokens : {650, 1001}) {
    for (const int64_t width : {4, 17, 64, 173}) {
      at::set_num_threads(1);
      const auto one = everything(tokens, width);
      for (const int more : {2, 3, 5}) {
        at::set_num_threads(more);
        const auto several = everything(tokens, width);
        for (size_t i = 0; i < one.size(); ++i)
          EXPECT_TRUE(at::equal(several[i], one[i])) << i << ": " << tokens << " x " << width;
      }
    }
  }
  at::set_num_threads(threads);
}

}  // namespace
}  // namespace danlu::ops
