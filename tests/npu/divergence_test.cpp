// Divergences of two heads on the NPU beside ATen's of the same numbers in f64, by all logits at
// once: values and gradients, whatever the beta, the chunks, the temperature, the cap and the
// ranks.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/error.h"
#include "device/npu.h"
#include "npu/support.h"
#include "ops/backend.h"
#include "ops/head_divergence.h"

namespace danlu::npu::test {
namespace divergence_test {

constexpr int64_t kRows = 11, kWidth = 24, kVocab = 37;

struct Case {
  double beta = 0.5, temperature = 1, cap = 0;
  int64_t chunk = 4, teachers_vocab = kVocab;
  at::ScalarType type = at::kFloat;
  bool has_low = false, has_bias = false, with_logprobs = false;
  double teachers_scale = 2;
};

const at::Tensor kAsked = at::tensor({0, 2, 5, 9, 10}, at::kLong);
const at::Tensor kIds = at::tensor({3, 30, 0, 19, 20}, at::kLong);

struct Found {
  at::Tensor divergences_M, logprobs_M;
  std::vector<at::Tensor> grads;
};

std::vector<at::Tensor> factors(const Case& of) {
  return {normal({kRows, kWidth}, 1, of.type), normal({kVocab, kWidth}, 2, of.type),
          normal({kRows, 4}, 3, of.type), normal({kVocab, 4}, 4, of.type),
          normal({kVocab}, 5, of.type)};
}

at::Tensor teachers_logits(const Case& of) {
  return normal({kAsked.numel(), of.teachers_vocab}, 7) * of.teachers_scale;
}

ops::OtherLogits teacher(const Case& of) {
  const at::Tensor logits_MV = teachers_logits(of).to(npu());
  return [logits_MV](int64_t begin, int64_t count, const ops::HeadColumns& columns) {
    const int64_t first = std::min(columns.first, logits_MV.size(1));
    return logits_MV.narrow(0, begin, count)
        .narrow(1, first, std::min(columns.count, logits_MV.size(1) - first));
  };
}

at::Tensor sum_of(const Found& found) {
  const at::Tensor by = normal({kAsked.numel()}, 6);
  at::Tensor sum = (found.divergences_M * by).sum();
  return found.logprobs_M.defined() ? sum + (found.logprobs_M * by.flip(0)).sum() : sum;
}

Found expected(const Case& of) {
  std::vector<at::Tensor> x;
  for (const at::Tensor& factor : factors(of)) x.push_back(factor.to(at::kDouble).requires_grad_());
  at::Tensor logits = x[0].matmul(x[1].t());
  if (of.has_low) logits = logits + x[2].matmul(x[3].t());
  if (of.has_bias) logits = logits + x[4];
  if (of.cap > 0) logits = of.cap * (logits / of.cap).tanh();
  logits = logits.index_select(0, kAsked);
  const auto log_shares = [&](const at::Tensor& of_both) {
    return at::log_softmax(of_both.narrow(1, 0, of.teachers_vocab) / of.temperature, 1);
  };
  const at::Tensor own = log_shares(logits),
                   other = log_shares(teachers_logits(of).to(at::kDouble));
  const auto kl = [](const at::Tensor& from, const at::Tensor& to) {
    return (from.exp() * (from - to)).sum(1);
  };
  Found found;
  if (of.beta == 0) {
    found.divergences_M = kl(other, own);
  } else if (of.beta == 1) {
    found.divergences_M = kl(own, other);
  } else {
    const at::Tensor mixed = at::logaddexp(other + std::log(of.beta), own + std::log(1 - of.beta));
    found.divergences_M = of.beta * kl(other, mixed) + (1 - of.beta) * kl(own, mixed);
  }
  if (of.with_logprobs)
    found.logprobs_M = at::log_softmax(logits, 1).gather(1, kIds.unsqueeze(1)).squeeze(1);
  sum_of(found).backward();
  for (const at::Tensor& factor : x) found.grads.push_back(factor.grad());
  return found;
}

ops::DivergenceOptions how_of(const Case& of) {
  return {.beta = of.beta,
          .temperature = of.temperature,
          .chunk_rows = of.chunk,
          .with_logprobs = of.with_logprobs};
}

Found on_npu(const Case& of) {
  std::vector<at::Tensor> x;
  for (const at::Tensor& factor : factors(of)) x.push_back(factor.to(npu()).requires_grad_());
  ops::HeadOptions options;
  options.softcap = of.cap;
  if (of.has_bias) options.bias_V = x[4];
  ops::HeadAddition addition;
  if (of.has_low) {
    addition.low_NR = x[2];
    addition.weight_VR = x[3];
  }
  const ops::HeadDivergence got =
      ops::head_divergence(x[0], x[1], kAsked, kIds, teacher(of), options, addition, how_of(of));
  EXPECT_TRUE(got.divergences_M.is_cpu());
  Found found{got.divergences_M, got.logprobs_M, {}};
  sum_of(found).backward();
  for (const at::Tensor& factor : x) found.grads.push_back(factor.grad());
  return found;
}

TEST(NpuDivergence, IsAtensWithItsGradients) {
  const Case all[] = {{},
                      {.beta = 0},
                      {.beta = 1},
                      {.beta = 0.1, .temperature = 0.9, .chunk = 1},
                      {.beta = 0.9, .chunk = 64, .with_logprobs = true},
                      {.beta = 0, .temperature = 2, .cap = 3, .with_logprobs = true},
                      {.beta = 1, .teachers_vocab = 31, .with_logprobs = true},
                      {.teachers_vocab = 31},
                      {.temperature = 1.5, .cap = 4, .has_low = true, .has_bias = true},
                      {.type = at::kBFloat16, .has_low = true},
                      {.type = at::kHalf, .with_logprobs = true},
                      // Tokens that one of them never says.
                      {.beta = 0.5, .teachers_scale = 200},
                      {.beta = 1, .teachers_scale = 200}};
  for (const Case& of : all) {
    SCOPED_TRACE(testing::Message()
                 << c10::toString(of.type) << " beta " << of.beta << " t " << of.temperature
                 << " cap " << of.cap << " chunk " << of.chunk << " of " << of.teachers_vocab);
    const double limit = of.type == at::kFloat ? 5e-6 : of.type == at::kHalf ? 3e-3 : 2e-2;
    const Found want = expected(of), got = on_npu(of);
    EXPECT_LE(distance(got.divergences_M.detach(), want.divergences_M.detach()), limit);
    if (of.with_logprobs) {
      EXPECT_LE(distance(got.logprobs_M.detach(), want.logprobs_M.detach()), limit);
    }
    for (size_t i = 0; i < 5; ++i) {
      const bool is_used = i < 2 || (i < 4 ? of.has_low : of.has_bias);
      ASSERT_EQ(got.grads[i].defined(), is_used) << i;
      if (is_used) EXPECT_LE(distance(got.grads[i].to(at::kCPU), want.grads[i]), 4 * limit) << i;
    }
  }
}

/// Two ranks that hold 20 and 17 rows of the head, one after the other in one process: of what
/// ranks sum and compare each knows the other's of the walk before. What is exchanged last hangs on
/// two exchanges before it.
TEST(NpuDivergence, RanksThatShareTheVocabularyHaveTheWhole) {
  for (const double beta : {0.0, 0.5, 1.0}) {
    SCOPED_TRACE(beta);
    const Case of{.beta = beta, .temperature = 0.9, .chunk = 64, .with_logprobs = true};
    const Found want = expected(of);
    const std::pair<int64_t, int64_t> parts[] = {{0, 20}, {20, 17}};
    std::vector<std::vector<at::Tensor>> told(2);
    at::Tensor hidden_sum, weights_of[2];
    for (const bool is_last : {false, false, false, false, true}) {
      std::vector<std::vector<at::Tensor>> tells(2);
      hidden_sum = at::zeros({kRows, kWidth}, at::kDouble);
      for (size_t rank = 0; rank < 2; ++rank) {
        const auto [first, count] = parts[rank];
        const auto exchange = [&](bool sums) {
          return [&, rank, sums](at::Tensor& mine) {
            const size_t call = tells[rank].size();
            tells[rank].push_back(mine.to(at::kCPU));
            if (told[1 - rank].size() <= call) return;
            const at::Tensor theirs = told[1 - rank][call], own = tells[rank].back();
            mine.copy_(sums ? own + theirs : at::maximum(own, theirs));
          };
        };
        ops::HeadOptions options;
        options.share = {first, kVocab, 20, exchange(true), exchange(false)};
        const at::Tensor hidden = factors(of)[0].to(npu()).requires_grad_(),
                         weight = factors(of)[1].narrow(0, first, count).to(npu()).requires_grad_();
        const ops::HeadDivergence got = ops::head_divergence(hidden, weight, kAsked, kIds,
                                                             teacher(of), options, {}, how_of(of));
        sum_of({got.divergences_M, got.logprobs_M, {}}).backward();
        weights_of[rank] = weight.grad().to(at::kCPU);
        hidden_sum += hidden.grad().to(at::kCPU).to(at::kDouble);
        if (!is_last) continue;
        EXPECT_LE(distance(got.divergences_M.detach(), want.divergences_M.detach()), 5e-6) << rank;
        EXPECT_LE(distance(got.logprobs_M.detach(), want.logprobs_M.detach()), 5e-6) << rank;
      }
      told = tells;
    }
    EXPECT_LE(distance(hidden_sum, want.grads[0]), 2e-5);
    EXPECT_LE(distance(at::cat({weights_of[0], weights_of[1]}), want.grads[1]), 2e-5);
  }
}

TEST(NpuDivergence, EntriesAreTheComposites) {
  const ops::Backend &own = ops::backend_of(npu().type()), &composite = ops::composite_backend();
  uint64_t seed = 20;
  const std::pair<int64_t, int64_t> shapes[] = {{1, 1}, {3, 17}, {7, 250}};
  for (const auto& [rows, columns] : shapes) {
    for (const double beta : {0.0, 0.3, 1.0}) {
      SCOPED_TRACE(testing::Message() << rows << "x" << columns << " " << beta);
      const auto positive = [&] { return normal({rows, 1}, ++seed).abs() + 1; };
      ops::TwoShares here;
      here.own_Cv = normal({rows, columns}, ++seed).to(at::kDouble);
      here.other_Cv = normal({rows, columns}, ++seed).to(at::kDouble);
      here.beta = beta;
      here.own_largest_C1 = positive().to(at::kDouble);
      here.own_total_C1 = positive().to(at::kDouble);
      here.other_largest_C1 = positive().to(at::kDouble);
      here.other_total_C1 = positive().to(at::kDouble);
      ops::TwoShares there = here;
      for (at::Tensor* tensor :
           {&there.own_Cv, &there.other_Cv, &there.own_largest_C1, &there.own_total_C1,
            &there.other_largest_C1, &there.other_total_C1})
        *tensor = tensor->to(at::kFloat).to(npu());
      const at::Tensor kl_C1 = positive(), factor_C1 = normal({rows, 1}, ++seed);
      EXPECT_LE(distance(own.divergence_sums(there), composite.divergence_sums(here)), 2e-6);
      EXPECT_LE(distance(own.divergence_grad(there, kl_C1.to(npu()), factor_C1.to(npu())),
                         composite.divergence_grad(here, kl_C1.to(at::kDouble),
                                                   factor_C1.to(at::kDouble))),
                2e-6);
    }
  }
}

/// A rank whose columns are behind the teacher's last token.
TEST(NpuDivergence, OfNoColumnsIsNothing) {
  const at::Tensor none_Cv = at::empty({3, 0}).to(npu()), ones_C1 = at::ones({3, 1}).to(npu());
  const ops::TwoShares shares{none_Cv, none_Cv, ones_C1, ones_C1, ones_C1, ones_C1, 0.5};
  const ops::Backend& own = ops::backend_of(npu().type());
  EXPECT_TRUE(own.divergence_sums(shares).to(at::kCPU).equal(at::zeros({3, 2})));
  EXPECT_EQ(own.divergence_grad(shares, ones_C1, ones_C1).sizes(), at::IntArrayRef({3, 0}));
}

TEST(NpuDivergence, OfNothingHasGradientsOfNothing) {
  const at::Tensor none = at::empty({0}, at::kLong);
  const at::Tensor hidden = factors({})[0].to(npu()).requires_grad_(),
                   weight = factors({})[1].to(npu()).requires_grad_();
  const ops::HeadDivergence got = ops::head_divergence(hidden, weight, none, none, teacher({}));
  EXPECT_EQ(got.divergences_M.numel(), 0);
  (got.divergences_M.sum() + got.logprobs_M.sum()).backward();
  EXPECT_EQ(hidden.grad().to(at::kCPU).abs().sum().item<float>(), 0);
  EXPECT_EQ(weight.grad().to(at::kCPU).abs().sum().item<float>(), 0);
}

/// Logits never come to the host: one copy of a few numbers a token does.
TEST(NpuDivergence, WaitsForTheDeviceOnceAPass) {
  if (is_on_card()) GTEST_SKIP() << "asks the simulator";
  const at::Tensor hidden = factors({})[0].to(npu()).requires_grad_(),
                   weight = factors({})[1].to(npu()).requires_grad_();
  const ops::OtherLogits other = teacher({});
  const int64_t waits = device::npu_waits(), bytes = counter("bytes.d2h");
  const ops::HeadDivergence got =
      ops::head_divergence(hidden, weight, kAsked, kIds, other, {}, {}, {.chunk_rows = 2});
  EXPECT_EQ(device::npu_waits() - waits, 1);
  (got.divergences_M.sum() + got.logprobs_M.sum()).backward();
  EXPECT_EQ(device::npu_waits() - waits, 1) << "a gradient goes to the device alone";
  EXPECT_LE(counter("bytes.d2h") - bytes, 5 * 4 * kAsked.numel());
}

TEST(NpuDivergence, OfTheLikeliestTokensAloneIsRefused) {
  EXPECT_THROW(ops::head_divergence(factors({})[0].to(npu()), factors({})[1].to(npu()), kAsked,
                                    kIds, teacher({}), {}, {}, {.topk = 4}),
               ModelError);
}

}  // namespace divergence_test
}  // namespace danlu::npu::test
