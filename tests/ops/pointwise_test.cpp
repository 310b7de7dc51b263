// Norms, rotary embedding, activation, linear layers, embedding, dropout.
#include "ops/pointwise.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "finite_differences.h"
#include "ops/dropout.h"
#include "ops/embedding.h"
#include "ops/linear.h"
#include "ops/noise.h"
#include "ops/norm_head.h"
#include "ops/rms_norm.h"
#include "ops/rotary.h"
#include "ops/swiglu.h"

namespace danlu::ops {
namespace {

using test::expect_gradients;
using test::random_f64;
using testing::HasSubstr;

at::Tensor f64(std::vector<double> values) {
  return at::tensor(values, at::TensorOptions(at::kDouble));
}

template <typename Action>
std::string message_of(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "(no error)";
}

TEST(RmsNorm, AddsEpsInsideTheRoot) {
  // mean square of (3,4) is 12.5; + eps 12.5 = 25, root 5
  EXPECT_TRUE(at::allclose(rms_norm(f64({3, 4}), f64({1, 2}), 12.5), f64({0.6, 1.6}), 0, 1e-12));
}

TEST(RmsNorm, GradientOfEveryInputMatchesFiniteDifferences) {
  expect_gradients([](const auto& in) { return rms_norm(in[0], in[1], 1e-3); },
                   {random_f64({3, 2, 5}, 1), random_f64({5}, 2)});
}

TEST(RmsNorm, RoundsTheQuotientBeforeTheWeight) {
  // Two roundings, as Hugging Face: the quotient to bf16, then the product.
  const at::Tensor x = at::tensor({1.0f, 1.004f}).to(at::kBFloat16);
  const at::Tensor weight = at::tensor({3.0f, 5.0f}).to(at::kBFloat16);
  const at::Tensor wide = x.to(at::kFloat);
  const at::Tensor expected =
      (wide / (wide.square().mean() + 1e-6).sqrt()).to(at::kBFloat16) * weight;
  EXPECT_TRUE(at::equal(rms_norm(x, weight, 1e-6), expected));
}

TEST(RmsNorm, RejectsAWeightOfTheWrongWidthAndNamesBothShapes) {
  const std::string text =
      message_of([] { rms_norm(random_f64({2, 4}, 1), random_f64({5}, 2), 1e-6); });
  EXPECT_THAT(text, HasSubstr("[5]"));
  EXPECT_THAT(text, HasSubstr("[2, 4]"));
}

TEST(Rotary, TurnsPairsHalfAHeadApart) {
  // D = 4, inv_freq {1, 0.1}, position 2: pair (0,2) turns by 2 rad, pair (1,3) by 0.2 rad.
  const RotaryTable table = rotary_table(at::tensor({2}, at::kLong), at::tensor({1.0f, 0.1f}), 1.0);
  const at::Tensor y = rotary(f64({1, 0, 0, 1}).view({1, 1, 4}), table).view({-1});
  EXPECT_NEAR(y[0].item<double>(), std::cos(2.0), 1e-6);
  EXPECT_NEAR(y[2].item<double>(), std::sin(2.0), 1e-6);
  EXPECT_NEAR(y[1].item<double>(), -std::sin(0.2), 1e-6);
  EXPECT_NEAR(y[3].item<double>(), std::cos(0.2), 1e-6);
}

TEST(Rotary, ProductsDependOnDistanceOnly) {
  const at::Tensor inv_freq = at::tensor({1.0f, 0.3f, 0.01f});
  const at::Tensor q = random_f64({1, 2, 6}, 1), k = random_f64({1, 2, 6}, 2);
  const auto product = [&](int64_t q_position, int64_t k_position) {
    const at::Tensor a =
        rotary(q, rotary_table(at::tensor({q_position}, at::kLong), inv_freq, 1.0));
    const at::Tensor b =
        rotary(k, rotary_table(at::tensor({k_position}, at::kLong), inv_freq, 1.0));
    return (a * b).sum(-1);
  };
  EXPECT_TRUE(at::allclose(product(9, 4), product(25, 20), 1e-5, 1e-5));
  EXPECT_FALSE(at::allclose(product(9, 4), product(9, 5), 1e-3, 1e-3));
}

TEST(Rotary, AttentionFactorScalesTheResult) {
  const at::Tensor x = random_f64({2, 1, 4}, 3), at = at::arange(2),
                   inv_freq = at::tensor({1.0f, 0.5f});
  EXPECT_TRUE(at::allclose(rotary(x, rotary_table(at, inv_freq, 1.25)),
                           rotary(x, rotary_table(at, inv_freq, 1.0)) * 1.25, 1e-6, 1e-6));
}

TEST(Rotary, ATableIsOfOneRowOfFrequenciesOrOfEachTokensOwn) {
  for (const int64_t tokens : {0, 1, 5, 900}) {
    const at::Tensor positions = at::arange(tokens) * 7 + 3;
    for (const at::Tensor& inv_freq : {random_f64({3}, 1), random_f64({tokens, 3}, 2)}) {
      const at::Tensor frequencies = inv_freq.abs().to(at::kFloat);
      const RotaryTable table = rotary_table(positions, frequencies, 1.5);
      const at::Tensor angle_NE =
          (positions.to(at::kFloat).unsqueeze(1) * frequencies).to(at::kDouble);
      EXPECT_TRUE(at::allclose(table.cos_NE.to(at::kDouble), angle_NE.cos() * 1.5, 1e-6, 1e-6));
      EXPECT_TRUE(at::allclose(table.sin_NE.to(at::kDouble), angle_NE.sin() * 1.5, 1e-6, 1e-6));
    }
  }
}

TEST(Rotary, RejectsFrequenciesOfOtherTokens) {
  const auto refused = [](const at::Tensor& positions, at::IntArrayRef frequencies) {
    return message_of([&] { rotary_table(positions, at::ones(frequencies), 1.0); });
  };
  EXPECT_THAT(refused(at::arange(3), {2, 5}), HasSubstr("[2, 5]"));
  EXPECT_THAT(refused(at::arange(3), {1, 5}), HasSubstr("[1, 5]"));
  EXPECT_THAT(refused(at::arange(3).to(at::kInt), {5}), HasSubstr("Int"));
}

TEST(Rotary, GradientMatchesFiniteDifferences) {
  const RotaryTable table = rotary_table(at::arange(3), at::tensor({1.0f, 0.2f, 0.05f}), 1.1);
  expect_gradients([&](const auto& in) { return rotary(in[0], table); },
                   {random_f64({3, 2, 6}, 1)});
}

TEST(Rotary, RejectsATableOfAnotherSize) {
  const RotaryTable table = rotary_table(at::arange(3), at::tensor({1.0f, 0.2f}), 1.0);
  EXPECT_THAT(message_of([&] { rotary(random_f64({3, 1, 3}, 1), table); }), HasSubstr("[3, 2]"));
  EXPECT_THAT(message_of([&] { rotary(random_f64({2, 1, 4}, 1), table); }), HasSubstr("[3, 2]"));
}

TEST(Shaped, IsAViewWithOrWithoutAGraph) {
  const at::Tensor x = random_f64({4, 6}, 1);
  expect_gradients([&](const auto& in) { return shaped(in[0], {2, 3, 4}); }, {x});
  const c10::InferenceMode answering;
  const at::Tensor own = x.clone();
  for (const at::Tensor& from : {own, own.narrow(0, 1, 2), own.t(), own.narrow(0, 0, 0)}) {
    const std::vector<int64_t> sizes{from.numel() / 2, 2};
    const at::Tensor y = shaped(from, sizes);
    EXPECT_TRUE(at::equal(y, from.reshape(sizes)));
    EXPECT_EQ(y.data_ptr() == from.data_ptr(), from.is_contiguous()) << from.strides();
    EXPECT_TRUE(y.is_inference());
  }
  EXPECT_THAT(message_of([&] { shaped(own, {5, 5}); }), HasSubstr("[4, 6]"));
}

TEST(Swiglu, IsSiluOfTheGateTimesUp) {
  // silu(1) = 1/(1+e^-1) = 0.7310585786
  EXPECT_NEAR(swiglu(f64({1}), f64({2})).item<double>(), 2 * 0.7310585786300049, 1e-12);
  expect_gradients([](const auto& in) { return swiglu(in[0], in[1]); },
                   {random_f64({3, 7}, 1), random_f64({3, 7}, 2)});
  EXPECT_THAT(message_of([] { swiglu(f64({1}), f64({1, 2})); }), HasSubstr("one shape"));
}

TEST(Linear, IsXTimesTransposedWeightPlusBias) {
  const at::Tensor y =
      ops::linear(f64({1, 2}).view({1, 2}), f64({3, 4, 5, 6}).view({2, 2}), f64({10, 20}));
  EXPECT_TRUE(at::equal(y, f64({21, 37}).view({1, 2})));
  expect_gradients([](const auto& in) { return ops::linear(in[0], in[1], in[2]); },
                   {random_f64({3, 5}, 1), random_f64({2, 5}, 2), random_f64({2}, 3)});
}

TEST(Linear, WorksInEveryModelDtype) {
  const at::Tensor x = random_f64({3, 5}, 1), w = random_f64({4, 5}, 2), b = random_f64({4}, 3);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const at::Tensor y = ops::linear(x.to(type), w.to(type), b.to(type));
    EXPECT_EQ(y.scalar_type(), type);
    EXPECT_TRUE(at::allclose(y.to(at::kDouble), ops::linear(x, w, b), 0.05, 0.05))
        << c10::toString(type);
  }
}

TEST(Linear, NamesShapesAndDtypesThatDoNotFit) {
  EXPECT_THAT(message_of([] { ops::linear(random_f64({3, 5}, 1), random_f64({2, 4}, 2)); }),
              HasSubstr("[2, 4]"));
  EXPECT_THAT(
      message_of([] { ops::linear(random_f64({3, 5}, 1), random_f64({2, 5}, 2).to(at::kFloat)); }),
      HasSubstr("Float"));
}

TEST(Embedding, GradientOfRepeatedIdsIsSummedBeforeRounding) {
  // 300 times 1 is 300 in bf16; added one by one in bf16 it would stop at 256.
  const at::Tensor weight = at::zeros({3, 2}, at::kBFloat16).requires_grad_(true);
  const at::Tensor rows = ops::embedding(at::ones({300}, at::kLong), weight);
  const at::Tensor grad = torch::autograd::grad({rows.sum()}, {weight})[0];
  EXPECT_EQ(grad[1][0].item<double>(), 300);
  EXPECT_EQ(grad[0][0].item<double>(), 0);
  EXPECT_EQ(grad[2][1].item<double>(), 0);
}

TEST(Embedding, LooksRowsUpAndItsGradientMatchesFiniteDifferences) {
  const at::Tensor ids = at::tensor({2, 0, 2}, at::kLong), table = random_f64({3, 4}, 1);
  EXPECT_TRUE(at::equal(ops::embedding(ids, table)[1], table[0]));
  expect_gradients([&](const auto& in) { return ops::embedding(ids, in[0]); }, {table});
}

TEST(Embedding, NamesAnIdOutsideTheVocabulary) {
  const std::string text =
      message_of([] { ops::embedding(at::tensor({1, 7}, at::kLong), random_f64({5, 2}, 1)); });
  EXPECT_THAT(text, HasSubstr("token id 7 is outside the vocabulary of 5 rows"));
}

TEST(NormHead, RowsHaveLengthOneAndTheGradientGoesThroughIt) {
  EXPECT_TRUE(
      at::allclose(norm_head(f64({3, 4, 0, 2}).view({2, 2})), f64({0.6, 0.8, 0, 1}).view({2, 2})));
  expect_gradients([](const auto& in) { return norm_head(in[0]); }, {random_f64({4, 3}, 1)});
  EXPECT_TRUE(at::isfinite(norm_head(at::zeros({2, 3}))).all().item<bool>());
}

at::Tensor keys_of(int64_t count, int64_t first = 0) {
  return at::arange(first, first + count, at::TensorOptions(at::kLong)) * 7919;
}

TEST(Dropout, ARowsMaskIsAFunctionOfItsKeyAndTheSaltAlone) {
  const at::Tensor x = at::ones({100, 101}), keys = keys_of(100);
  const at::Tensor y = ops::dropout(x, 0.25, keys, 7);
  EXPECT_TRUE(at::equal(y, ops::dropout(x, 0.25, keys, 7)));
  EXPECT_FALSE(at::equal(y, ops::dropout(x, 0.25, keys, 8)));
  // Rows in another order, and fewer of them.
  const at::Tensor some = at::tensor({41, 3, 99}, at::kLong);
  EXPECT_TRUE(at::equal(ops::dropout(x.narrow(0, 0, 3), 0.25, keys.index_select(0, some), 7),
                        y.index_select(0, some)));
  EXPECT_NEAR(y.mean().item<double>(), 1.0, 0.03);
  EXPECT_NEAR((y == 0).to(at::kFloat).mean().item<double>(), 0.25, 0.02);
  EXPECT_TRUE(at::equal(ops::dropout(x, 0, keys, 7), x));
  EXPECT_THAT(message_of([&] { ops::dropout(x, 1.0, keys, 1); }), HasSubstr("[0, 1)"));
  EXPECT_THAT(message_of([&] { ops::dropout(x, 0.1, keys_of(99), 1); }),
              HasSubstr("one int64 key for each row"));
}

TEST(Dropout, NeighboursRowsAndSaltsAreIndependent) {
  const at::Tensor x = at::ones({400, 400});
  const at::Tensor kept = ops::dropout(x, 0.5, keys_of(400), 3).ne(0).to(at::kDouble) - 0.5;
  const at::Tensor other = ops::dropout(x, 0.5, keys_of(400), 4).ne(0).to(at::kDouble) - 0.5;
  const auto correlation = [](const at::Tensor& a, const at::Tensor& b) {
    return (a * b).mean().item<double>() / 0.25;
  };
  // Five standard deviations of the mean of 160,000 coins.
  EXPECT_LT(std::abs(correlation(kept, other)), 5.0 / 400);
  EXPECT_LT(std::abs(correlation(kept.narrow(0, 1, 399), kept.narrow(0, 0, 399))), 5.0 / 399);
  for (const int64_t distance : {1, 2, 3}) {
    const int64_t width = 400 - distance;
    EXPECT_LT(std::abs(correlation(kept.narrow(1, distance, width), kept.narrow(1, 0, width))),
              5.0 / 399);
  }
}

TEST(Dropout, TheFusedLoopIsTheComposite) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    const at::Tensor x = random_f64({17, 33}, 5).to(type), keys = keys_of(17, 1000);
    EXPECT_TRUE(at::equal(ops::dropout(x, 0.3, keys, 11), oracle::dropout(x, 0.3, keys, 11)))
        << c10::toString(type);
  }
  const at::Tensor keys = keys_of(6);
  expect_gradients([&](const auto& in) { return ops::dropout(in[0], 0.3, keys, 2); },
                   {random_f64({6, 5}, 9)});
}

TEST(Noise, IsUniformAndAFunctionOfItsKeyTheSaltAndTheColumn) {
  const at::Tensor x = random_f64({200, 101}, 3), keys = keys_of(200),
                   sizes = at::ones({200}, at::kDouble) * 0.5;
  const at::Tensor noise = with_noise(x, sizes, keys, 7) - x;
  EXPECT_TRUE(at::allclose(noise, with_noise(x * 0, sizes, keys, 7), 0, 1e-12));
  EXPECT_FALSE(at::allclose(noise, with_noise(x * 0, sizes, keys, 8), 0, 1e-3));
  // 20,200 draws of variance 0.5² / 3: five deviations of their mean, and of the mean of squares.
  EXPECT_NEAR(noise.mean().item<double>(), 0, 5 * 0.5 / std::sqrt(3 * 20200.0));
  EXPECT_NEAR(noise.square().mean().item<double>(), 0.25 / 3, 0.003);
  EXPECT_LE(noise.abs().max().item<double>(), 0.5);
  EXPECT_GT(noise.abs().max().item<double>(), 0.499);
  const at::Tensor some = at::tensor({41, 3, 99}, at::kLong);
  EXPECT_TRUE(at::allclose(
      with_noise(x.narrow(0, 0, 3) * 0, sizes.narrow(0, 0, 3), keys.index_select(0, some), 7),
      noise.index_select(0, some), 0, 1e-12));
  EXPECT_THAT(message_of([&] { with_noise(x, sizes, keys_of(99), 1); }), HasSubstr("for each row"));
}

TEST(Noise, TheLoopIsTheComposite) {
  const at::Tensor keys = keys_of(17, 1000),
                   sizes = random_f64({17}, 4).abs();  // one size for each row
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    const at::Tensor zeros = at::zeros({17, 33}, type);
    EXPECT_TRUE(
        at::equal(with_noise(zeros, sizes, keys, 11), oracle::noise(sizes, keys, 11, 33, type)))
        << c10::toString(type);
  }
  expect_gradients([&](const auto& in) { return with_noise(in[0], sizes, keys, 2); },
                   {random_f64({17, 5}, 9)});
}

}  // namespace
}  // namespace danlu::ops
