// Log-probabilities of chosen tokens on the NPU beside ATen's of the same numbers in f64: values,
// entropies and gradients, whatever the chunks, the temperature, the cap and the ranks.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "device/npu.h"
#include "npu/support.h"
#include "ops/token_logprobs.h"

namespace danlu::npu::test {
namespace {

constexpr int64_t kRows = 11, kWidth = 24, kVocab = 37;

struct Case {
  at::ScalarType type = at::kFloat;
  double temperature = 1, cap = 0;
  int64_t chunk = 4;
  bool has_low = false, has_bias = false;
};

/// Rows that repeat, and rows that nobody asks for.
const at::Tensor kAsked = at::tensor({0, 2, 2, 2, 5, 9, 10}, at::kLong);
const at::Tensor kIds = at::tensor({3, 36, 0, 36, 19, 20, 1}, at::kLong);

struct Found {
  at::Tensor logprobs_M, entropies_M, is_largest_M;
  std::vector<at::Tensor> grads;
};

std::vector<at::Tensor> factors(const Case& of) {
  return {normal({kRows, kWidth}, 1, of.type), normal({kVocab, kWidth}, 2, of.type),
          normal({kRows, 4}, 3, of.type), normal({kVocab, 4}, 4, of.type),
          normal({kVocab}, 5, of.type)};
}

/// On the host in f64, by all logits at once.
Found expected(const Case& of) {
  std::vector<at::Tensor> x;
  for (const at::Tensor& factor : factors(of)) x.push_back(factor.to(at::kDouble).requires_grad_());
  at::Tensor logits = x[0].matmul(x[1].t());
  if (of.has_low) logits = logits + x[2].matmul(x[3].t());
  if (of.has_bias) logits = logits + x[4];
  if (of.cap > 0) logits = of.cap * (logits / of.cap).tanh();
  const at::Tensor all = at::log_softmax(logits / of.temperature, 1).index_select(0, kAsked);
  const at::Tensor logprobs = all.gather(1, kIds.unsqueeze(1)).squeeze(1);
  (logprobs * normal({kIds.numel()}, 6).to(at::kDouble)).sum().backward();
  Found found{logprobs.detach(), -(all.exp() * all).sum(1).detach(), all.argmax(1) == kIds, {}};
  for (const at::Tensor& factor : x) found.grads.push_back(factor.grad());
  return found;
}

ops::HeadAddition addition_of(const Case& of, const at::Tensor& low, const at::Tensor& weight) {
  ops::HeadAddition addition;
  if (of.has_low) {
    addition.low_NR = low;
    addition.weight_VR = weight;
  }
  return addition;
}

Found on_npu(const Case& of) {
  std::vector<at::Tensor> x;
  for (const at::Tensor& factor : factors(of)) x.push_back(factor.to(npu()).requires_grad_());
  ops::HeadOptions options;
  options.softcap = of.cap;
  if (of.has_bias) options.bias_V = x[4];
  const ops::TokenLogprobs got = ops::head_token_logprobs(
      x[0], x[1], kAsked, kIds, options, addition_of(of, x[2], x[3]),
      {.temperature = of.temperature, .entropy = true, .chunk_rows = of.chunk});
  EXPECT_TRUE(got.logprobs_M.is_cpu());
  (got.logprobs_M * normal({kIds.numel()}, 6)).sum().backward();
  Found found{got.logprobs_M.detach(), got.entropies_M, got.is_largest_M, {}};
  for (const at::Tensor& factor : x) found.grads.push_back(factor.grad());
  return found;
}

TEST(NpuLogprobs, AreAtensWithTheirGradients) {
  const Case all[] = {{},
                      {.chunk = 64},
                      {.temperature = 0.7, .chunk = 1},
                      {.cap = 3},
                      {.temperature = 1.5, .cap = 4, .has_low = true, .has_bias = true},
                      {.type = at::kBFloat16, .has_low = true},
                      {.type = at::kHalf}};
  for (const Case& of : all) {
    SCOPED_TRACE(testing::Message() << c10::toString(of.type) << " t " << of.temperature << " cap "
                                    << of.cap << " chunk " << of.chunk);
    const double limit = of.type == at::kFloat ? 5e-6 : of.type == at::kHalf ? 3e-3 : 2e-2;
    const Found want = expected(of), got = on_npu(of);
    EXPECT_LE(distance(got.logprobs_M, want.logprobs_M), limit);
    EXPECT_LE(distance(got.entropies_M, want.entropies_M), 2 * limit);
    EXPECT_TRUE(got.is_largest_M.equal(want.is_largest_M));
    for (size_t i = 0; i < 5; ++i) {
      const bool is_used = i < 2 || (i < 4 ? of.has_low : of.has_bias);
      ASSERT_EQ(got.grads[i].defined(), is_used) << i;
      if (is_used) EXPECT_LE(distance(got.grads[i].to(at::kCPU), want.grads[i]), 4 * limit) << i;
    }
  }
}

/// Two ranks that hold 20 and 17 rows of the head, one after the other in one process: what ranks
/// sum and compare is kept from a first walk for a second one.
TEST(NpuLogprobs, RanksThatShareTheVocabularyHaveTheWhole) {
  const Case of;
  const Found want = expected(of);
  const std::pair<int64_t, int64_t> parts[] = {{0, 20}, {20, 17}};
  std::vector<std::vector<at::Tensor>> told(2);  // what each rank gave, in order
  at::Tensor hidden_sum, weights_of[2], logprobs;
  for (const bool is_last : {false, false, true}) {
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
      const ops::TokenLogprobs got =
          ops::head_token_logprobs(hidden, weight, kAsked, kIds, options, {}, {.chunk_rows = 64});
      (got.logprobs_M * normal({kIds.numel()}, 6)).sum().backward();
      logprobs = got.logprobs_M.detach();
      weights_of[rank] = weight.grad().to(at::kCPU);
      hidden_sum += hidden.grad().to(at::kCPU).to(at::kDouble);
      if (!is_last) continue;
      EXPECT_LE(distance(logprobs, want.logprobs_M), 5e-6) << rank;
    }
    told = tells;
  }
  EXPECT_LE(distance(hidden_sum, want.grads[0]), 2e-5);
  EXPECT_LE(distance(at::cat({weights_of[0], weights_of[1]}), want.grads[1]), 2e-5);
}

TEST(NpuLogprobs, OfNothingHaveGradientsOfNothing) {
  const at::Tensor none = at::empty({0}, at::kLong);
  const at::Tensor hidden = factors({})[0].to(npu()).requires_grad_(),
                   weight = factors({})[1].to(npu()).requires_grad_();
  const ops::TokenLogprobs got =
      ops::head_token_logprobs(hidden, weight, none, none, {}, {}, {.entropy = true});
  EXPECT_EQ(got.logprobs_M.numel(), 0);
  EXPECT_EQ(got.entropies_M.numel(), 0);
  got.logprobs_M.sum().backward();
  EXPECT_EQ(hidden.grad().to(at::kCPU).abs().sum().item<float>(), 0);
  EXPECT_EQ(weight.grad().to(at::kCPU).abs().sum().item<float>(), 0);
}

/// Logits never come to the host: one copy of a few numbers a token does.
TEST(NpuLogprobs, WaitForTheDeviceOnceAPass) {
  if (is_on_card()) GTEST_SKIP() << "asks the simulator";
  const at::Tensor hidden = factors({})[0].to(npu()).requires_grad_(),
                   weight = factors({})[1].to(npu()).requires_grad_();
  for (const bool with_grad : {true, false}) {
    const at::AutoGradMode mode(with_grad);
    const int64_t waits = device::npu_waits(), bytes = counter("bytes.d2h");
    const ops::TokenLogprobs got = ops::head_token_logprobs(hidden, weight, kAsked, kIds, {}, {},
                                                            {.entropy = true, .chunk_rows = 2});
    EXPECT_EQ(device::npu_waits() - waits, 1);
    if (with_grad) got.logprobs_M.sum().backward();
    EXPECT_EQ(device::npu_waits() - waits, 1) << "a gradient goes to the device alone";
    EXPECT_LE(counter("bytes.d2h") - bytes, 4 * 4 * kRows);
  }
}

}  // namespace
}  // namespace danlu::npu::test
