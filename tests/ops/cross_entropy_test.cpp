#include "ops/cross_entropy.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/tensor.h>
#include <ATen/record_function.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "base/error.h"
#include "finite_differences.h"

namespace danlu::ops {
namespace {

using test::expect_gradients;
using test::random_f64;

const std::vector<int64_t> kTargets{3, -100, 0, 6, -100, 6, 2};

at::Tensor targets() { return at::tensor(kTargets, at::TensorOptions(at::kLong)); }

TEST(HeadAddition, IsThatOfTheSummedWeight) {
  // Reference: the plain head with W + B A, and autograd through all its logits.
  const at::Tensor hidden = random_f64({7, 5}, 31), weight = random_f64({11, 5}, 32);
  const at::Tensor a_RH = random_f64({3, 5}, 33), b_VR = random_f64({11, 3}, 34);
  HeadOptions options;
  options.z_loss_weight = 0.1;
  for (const int64_t chunk : {0, 2}) {
    options.chunk_tokens = chunk;
    const auto leaves = [&] {
      std::vector<at::Tensor> all;
      for (const at::Tensor& t : {hidden, weight, a_RH, b_VR})
        all.push_back(t.detach().clone().requires_grad_(true));
      return all;
    };
    const auto in = leaves(), same = leaves();
    const CrossEntropy added =
        head_cross_entropy(in[0], in[1], targets(), options, {at::mm(in[0], in[2].t()), in[3]});
    const CrossEntropy summed =
        oracle::head_cross_entropy(same[0], same[1] + at::mm(same[3], same[2]), targets(), options);
    EXPECT_NEAR(added.sum.item<double>(), summed.sum.item<double>(), 1e-12);
    EXPECT_TRUE(added.num_correct.equal(summed.num_correct));
    const auto grads = torch::autograd::grad({added.sum}, in);
    const auto expected = torch::autograd::grad({summed.sum}, same);
    for (size_t i = 0; i < 4; ++i)
      EXPECT_TRUE(at::allclose(grads[i], expected[i], 1e-11, 1e-12)) << i;
  }
}

TEST(CrossEntropy, IsMinusTheLogOfTheTargetsSoftmax) {
  // softmax of (0, ln 3) is (1/4, 3/4): -ln 3/4 for target 1.
  const at::Tensor logits = at::tensor({0.0, std::log(3.0)}, at::kDouble).view({1, 2});
  const CrossEntropy result = cross_entropy(logits, at::tensor({1}, at::kLong));
  EXPECT_NEAR(result.sum.item<double>(), std::log(4.0 / 3.0), 1e-12);
  EXPECT_EQ(result.num_targets, 1);
  EXPECT_EQ(result.num_correct.item<int64_t>(), 1);
}

TEST(CrossEntropy, GradientMatchesFiniteDifferencesWithAndWithoutZLoss) {
  for (const double z : {0.0, 0.3}) {
    expect_gradients([&](const auto& in) { return cross_entropy(in[0], targets(), z).sum; },
                     {random_f64({7, 9}, 4)}, 1e-6);
  }
}

class HeadCrossEntropy : public testing::TestWithParam<int64_t> {};

TEST_P(HeadCrossEntropy, LossCountsAndGradientsEqualTheOracle) {
  for (const double z : {0.0, 0.01}) {
    const at::Tensor hidden = random_f64({7, 5}, 1).requires_grad_(true),
                     weight = random_f64({11, 5}, 2).requires_grad_(true);
    HeadOptions options;
    options.chunk_tokens = GetParam();
    options.z_loss_weight = z;
    const CrossEntropy fused = head_cross_entropy(hidden, weight, targets(), options);
    const CrossEntropy plain = oracle::head_cross_entropy(hidden, weight, targets(), options);
    EXPECT_NEAR(fused.sum.item<double>(), plain.sum.item<double>(), 1e-12);
    EXPECT_EQ(fused.num_targets, 5);
    EXPECT_TRUE(fused.num_correct.equal(plain.num_correct));
    const auto ours = torch::autograd::grad({fused.sum / 5}, {hidden, weight});
    const auto theirs = torch::autograd::grad({plain.sum / 5}, {hidden, weight});
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(at::allclose(ours[i], theirs[i], 1e-10, 1e-12));
  }
}

TEST_P(HeadCrossEntropy, GradientMatchesFiniteDifferences) {
  HeadOptions options;
  options.chunk_tokens = GetParam();
  options.z_loss_weight = 0.1;
  expect_gradients(
      [&](const auto& in) { return head_cross_entropy(in[0], in[1], targets(), options).sum; },
      {random_f64({7, 3}, 5), random_f64({8, 3}, 6)}, 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Chunks, HeadCrossEntropy, testing::Values(0, 1, 2, 5, 7, 64));

TEST(HeadCrossEntropyScale, AnyFactorAfterwardsGivesTheRightGradient) {
  const at::Tensor hidden = random_f64({7, 5}, 1).requires_grad_(true),
                   weight = random_f64({11, 5}, 2).requires_grad_(true);
  const auto plain = torch::autograd::grad(
      {head_cross_entropy(hidden, weight, targets()).sum * 3.0}, {hidden, weight});
  for (const double announced : {3.0, 1024.0}) {
    HeadOptions options;
    options.grad_scale = announced;
    const auto scaled = torch::autograd::grad(
        {head_cross_entropy(hidden, weight, targets(), options).sum * 3.0}, {hidden, weight});
    for (int i = 0; i < 2; ++i)
      EXPECT_TRUE(at::allclose(scaled[i], plain[i], 1e-10, 1e-12)) << announced;
  }
}

/// Products made by the backward pass when the forward pass was told `scale`.
int multiplications_of_backward(double scale) {
  const at::Tensor hidden = at::rand({7, 5}).requires_grad_(true),
                   weight = at::rand({11, 5}).requires_grad_(true);
  HeadOptions options;
  options.grad_scale = scale;
  const at::Tensor loss = head_cross_entropy(hidden, weight, targets(), options).sum * scale;
  static int count;
  count = 0;
  const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback(
      [](const at::RecordFunction& call) -> std::unique_ptr<at::ObserverContext> {
        count += std::string(call.name()) == "aten::mul";
        return nullptr;
      }));
  torch::autograd::backward({loss}, {});
  at::removeCallback(handle);
  return count;
}

TEST(HeadCrossEntropyScale, AScaleThatF32RoundsStillNeedsNoFurtherPass) {
  EXPECT_EQ(multiplications_of_backward(1.0 / 3), multiplications_of_backward(0.5));
}

TEST(HeadCrossEntropyEdges, NoTargetGivesZeroLossAndZeroGradients) {
  const at::Tensor hidden = random_f64({2, 5}, 1).requires_grad_(true),
                   weight = random_f64({11, 5}, 2).requires_grad_(true);
  const CrossEntropy result = head_cross_entropy(hidden, weight, at::full({2}, -100, at::kLong));
  EXPECT_EQ(result.num_targets, 0);
  EXPECT_EQ(result.sum.item<double>(), 0);
  const auto grads = torch::autograd::grad({result.sum}, {hidden, weight});
  EXPECT_EQ(grads[0].abs().sum().item<double>() + grads[1].abs().sum().item<double>(), 0);
}

TEST(HeadCrossEntropyEdges, FrozenWeightOrNoGradModeStillGiveTheLoss) {
  const at::Tensor hidden = random_f64({7, 5}, 1).requires_grad_(true),
                   weight = random_f64({11, 5}, 2);
  const CrossEntropy frozen = head_cross_entropy(hidden, weight, targets());
  EXPECT_TRUE(torch::autograd::grad({frozen.sum}, {hidden})[0].defined());
  const at::NoGradGuard no_grad;
  const CrossEntropy quiet = head_cross_entropy(hidden, weight, targets());
  EXPECT_FALSE(quiet.sum.requires_grad());
  EXPECT_EQ(quiet.sum.item<double>(), frozen.sum.item<double>());
}

TEST(HeadCrossEntropyEdges, NamesATargetOutsideTheVocabulary) {
  try {
    head_cross_entropy(random_f64({1, 5}, 1), random_f64({11, 5}, 2), at::tensor({11}, at::kLong));
    FAIL();
  } catch (const ModelError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("target 11 is outside the vocabulary of 11"));
  }
}

TEST(HeadCrossEntropyDtypes, LowPrecisionStaysNearFullPrecision) {
  const at::Tensor hidden = random_f64({7, 16}, 1) * 0.5, weight = random_f64({11, 16}, 2) * 0.5;
  const at::Tensor h64 = hidden.clone().requires_grad_(true),
                   w64 = weight.clone().requires_grad_(true);
  const auto exact =
      torch::autograd::grad({head_cross_entropy(h64, w64, targets()).sum}, {h64, w64});
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const at::Tensor h = hidden.to(type).requires_grad_(true),
                     w = weight.to(type).requires_grad_(true);
    const CrossEntropy result = head_cross_entropy(h, w, targets(), {0.0, 1.0, 2});
    EXPECT_EQ(result.sum.scalar_type(), at::kFloat);
    const auto grads = torch::autograd::grad({result.sum}, {h, w});
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(grads[i].scalar_type(), type);
      EXPECT_TRUE(at::allclose(grads[i].to(at::kDouble), exact[i], 0.05, 0.05))
          << c10::toString(type);
    }
  }
}

}  // namespace
}  // namespace danlu::ops
