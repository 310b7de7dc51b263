// Operators against loops written here, gradients against differences.
#include <cmath>
#include <limits>

#include "card.h"

// The variant "old" lacks them, and this program also runs with it.
#pragma weak aclnnRotaryPositionEmbedding
#pragma weak aclnnRotaryPositionEmbeddingGetWorkspaceSize
#pragma weak aclnnRotaryPositionEmbeddingGrad
#pragma weak aclnnRotaryPositionEmbeddingGradGetWorkspaceSize
#pragma weak aclnnForeachNonFiniteCheckAndUnscale
#pragma weak aclnnForeachNonFiniteCheckAndUnscaleGetWorkspaceSize
#pragma weak aclnnGeluBackwardV2
#pragma weak aclnnGeluBackwardV2GetWorkspaceSize

namespace npu_sim_test {
namespace {

class Operators : public Card {
 protected:
  /// a [m,k] · b [k,n]
  static Numbers product(const Numbers& a, const Numbers& b, int64_t m, int64_t k, int64_t n) {
    Numbers c(static_cast<size_t>(m * n));
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        for (int64_t l = 0; l < k; ++l) {
          c[static_cast<size_t>(i * n + j)] +=
              a[static_cast<size_t>(i * k + l)] * b[static_cast<size_t>(l * n + j)];
        }
      }
    }
    return c;
  }
  static Numbers turned(const Numbers& a, int64_t rows, int64_t columns) {
    Numbers t(a.size());
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j)
        t[static_cast<size_t>(j * rows + i)] = a[static_cast<size_t>(i * columns + j)];
    }
    return t;
  }
  static Numbers rounded_all(Numbers values, aclDataType type) {
    for (double& v : values) v = rounded(v, type);
    return values;
  }
  /// d(sum of up · f(x)) / dx by differences.
  static Numbers differences(Numbers x, const Numbers& up,
                             const std::function<Numbers(const Numbers&)>& f) {
    constexpr double kStep = 1e-5;
    Numbers grad(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      const double kept = x[i];
      x[i] = kept + kStep;
      const Numbers above = f(x);
      x[i] = kept - kStep;
      const Numbers below = f(x);
      x[i] = kept;
      for (size_t j = 0; j < up.size(); ++j) grad[i] += up[j] * (above[j] - below[j]) / (2 * kStep);
    }
    return grad;
  }
};

TEST_F(Operators, MatmulTakesATransposedView) {
  const Numbers x = noise(5 * 7), w = noise(3 * 7);
  const Array a = put({5, 7}, x), b = put({3, 7}, w), out = empty({5, 3});
  ASSERT_EQ(RUN(aclnnMatmul, of(a), view(b, {7, 3}, {1, 7}), of(out), int8_t{0}), 0)
      << aclGetRecentErrMsg();
  expect_near(get(out), product(x, turned(w, 3, 7), 5, 7, 3), 1e-6);
}

TEST_F(Operators, MatmulBroadcastsBatchesAndTakesVectors) {
  const Numbers x = noise(2 * 3 * 4), w = noise(4 * 2), v = noise(4);
  const Array a = put({2, 3, 4}, x), b = put({4, 2}, w), c = put({4}, v), out = empty({2, 3, 2}),
              vec = empty({2, 3});
  ASSERT_EQ(RUN(aclnnMatmul, of(a), of(b), of(out), int8_t{0}), 0);
  expect_near(get(out), product(x, w, 6, 4, 2), 1e-6);
  ASSERT_EQ(RUN(aclnnMatmul, of(a), of(c), of(vec), int8_t{0}), 0);
  expect_near(get(vec), product(x, v, 6, 4, 1), 1e-6);
}

TEST_F(Operators, SixteenBitProductsAreSummedWideAndRoundedOnce) {
  // 1 + 2^-10 as a sum: bf16 cannot hold it, f32 can.
  const Array a = put({1, 2}, {1, 1.0 / 1024}, ACL_BF16), b = put({2, 1}, {1, 1}, ACL_BF16);
  const Array narrow = empty({1, 1}, ACL_BF16), wide = empty({1, 1}), sum = put({1, 1}, {2});
  ASSERT_EQ(RUN(aclnnMm, of(a), of(b), of(narrow), int8_t{0}), 0);
  ASSERT_EQ(RUN(aclnnMm, of(a), of(b), of(wide), int8_t{0}), 0);
  ASSERT_EQ(RUN(aclnnInplaceAddmm, of(sum), of(a), of(b), scalar(1), scalar(1), int8_t{0}), 0);
  EXPECT_EQ(get(narrow)[0], 1);
  EXPECT_EQ(get(wide)[0], 1 + 1.0 / 1024);
  EXPECT_EQ(get(sum)[0], 3 + 1.0 / 1024);
}

TEST_F(Operators, ProductsRefuseMixedTypesAndTheWrongMathType) {
  const Array a = put({2, 2}, {1, 2, 3, 4}, ACL_BF16), b = put({2, 2}, {1, 2, 3, 4}),
              h = put({2, 2}, {1, 2, 3, 4}, ACL_FLOAT16);
  EXPECT_EQ(RUN(aclnnMm, of(a), of(b), of(b), int8_t{0}), 161002);
  EXPECT_EQ(RUN(aclnnMm, of(a), of(h), of(a), int8_t{0}), 161002);
  EXPECT_EQ(RUN(aclnnMm, of(a), of(a), of(a), int8_t{2}), 161002);
  EXPECT_EQ(RUN(aclnnMm, of(a), of(a), of(a), int8_t{3}), 161002);
  EXPECT_EQ(RUN(aclnnMm, of(a), view(a, {1, 2}, {2, 1}), of(a), int8_t{0}), 161002);
}

TEST_F(Operators, AddmmScalesBothParts) {
  const Numbers s = noise(6), x = noise(8), w = noise(12);
  const Array self = put({2, 3}, s), a = put({2, 4}, x), b = put({4, 3}, w), out = empty({2, 3});
  ASSERT_EQ(RUN(aclnnAddmm, of(self), of(a), of(b), scalar(0.5), scalar(-2), of(out), int8_t{0}),
            0);
  Numbers wanted = product(x, w, 2, 4, 3);
  for (size_t i = 0; i < wanted.size(); ++i) wanted[i] = 0.5 * s[i] - 2 * wanted[i];
  expect_near(get(out), wanted, 1e-6);
}

TEST_F(Operators, CastsRoundToNearestWithTiesToEven) {
  // Between 1 and 1 + 2^-7 (the next bf16) lie the tie and its neighbours.
  const Numbers in = {1 + 1.0 / 256, 1 + 3.0 / 256, 1 + 1.0 / 256 + 1e-6, -1e-40, 65504,
                      7e4,           5.96e-8};
  const Array a = put({7}, in), b = empty({7}, ACL_BF16), h = empty({7}, ACL_FLOAT16);
  ASSERT_EQ(RUN(aclnnCast, of(a), ACL_BF16, of(b)), 0);
  ASSERT_EQ(RUN(aclnnCast, of(a), ACL_FLOAT16, of(h)), 0);
  const Numbers brain = get(b), half = get(h);
  EXPECT_EQ(brain[0], 1);
  EXPECT_EQ(brain[1], 1 + 1.0 / 64);
  EXPECT_EQ(brain[2], 1 + 1.0 / 128);
  EXPECT_EQ(half[4], 65504);
  EXPECT_TRUE(std::isinf(half[5]));
  EXPECT_EQ(half[6], std::ldexp(1.0, -24));
}

TEST_F(Operators, InplaceCopyMovesStridesTypesAndRepeats) {
  const Array a = put({2, 3}, {0, 1, 2, 3, 4, 5}), out = put({3, 2}, Numbers(6, 9), ACL_BF16),
              row = put({3}, {7, 8, 9});
  ASSERT_EQ(RUN(aclnnInplaceCopy, of(out), view(a, {3, 2}, {1, 3})), 0);
  EXPECT_EQ(get(out), (Numbers{0, 3, 1, 4, 2, 5}));
  ASSERT_EQ(RUN(aclnnInplaceCopy, of(a), of(row)), 0);
  EXPECT_EQ(get(a), (Numbers{7, 8, 9, 7, 8, 9}));
}

TEST_F(Operators, LargeWholeNumbersKeepEveryBit) {
  const double big = 9007199254740992.0;  // 2^53
  const Array a = put({2}, {big, -big}, ACL_INT64), one = put({1}, {1}, ACL_INT64),
              out = empty({2}, ACL_INT64);
  ASSERT_EQ(RUN(aclnnAdd, of(a), of(one), scalar(1), of(out)), 0);
  ASSERT_EQ(RUN(aclnnSub, of(out), of(a), scalar(1), of(out)), 0);
  EXPECT_EQ(get(out), (Numbers{1, 1}));
}

TEST_F(Operators, ElementwiseOperatorsBroadcastAndCompute) {
  const Array a = put({2, 2}, {1, 2, 3, 4}), b = put({2}, {10, 0.5}), out = empty({2, 2}),
              truth = empty({2, 2}, ACL_BOOL);
  ASSERT_EQ(RUN(aclnnMul, of(a), of(b), of(out)), 0);
  EXPECT_EQ(get(out), (Numbers{10, 1, 30, 2}));
  ASSERT_EQ(RUN(aclnnSub, of(a), of(b), scalar(2), of(out)), 0);
  EXPECT_EQ(get(out), (Numbers{-19, 1, -17, 3}));
  ASSERT_EQ(RUN(aclnnDiv, of(a), of(b), of(out)), 0);
  expect_near(get(out), {0.1, 4, 0.3, 8}, 1e-6);
  ASSERT_EQ(RUN(aclnnGeScalar, of(a), scalar(3), of(truth)), 0);
  EXPECT_EQ(get(truth), (Numbers{0, 0, 1, 1}));
  ASSERT_EQ(RUN(aclnnSWhere, of(truth), of(a), of(b), of(out)), 0);
  EXPECT_EQ(get(out), (Numbers{10, 0.5, 3, 4}));
  ASSERT_EQ(RUN(aclnnInplaceMaskedFillScalar, of(a), of(truth), scalar(-1)), 0);
  EXPECT_EQ(get(a), (Numbers{1, 2, -1, -1}));
  ASSERT_EQ(RUN(aclnnRsqrt, of(b), of(b)), 0);
  expect_near(get(b), {std::sqrt(0.1), std::sqrt(2)}, 1e-6);
}

TEST_F(Operators, CatArangePermuteAndFillPlaceElements) {
  const Array a = put({2, 1}, {1, 2}), b = put({2, 2}, {3, 4, 5, 6}), out = empty({2, 3}),
              turn = empty({3, 2});
  const Array count = empty({4}, ACL_INT64);
  ASSERT_EQ(RUN(aclnnCat, list({a, b}), int64_t{1}, of(out)), 0);
  EXPECT_EQ(get(out), (Numbers{1, 3, 4, 2, 5, 6}));
  ASSERT_EQ(RUN(aclnnPermute, of(out), ints({1, 0}), of(turn)), 0);
  EXPECT_EQ(get(turn), (Numbers{1, 2, 3, 5, 4, 6}));
  ASSERT_EQ(RUN(aclnnArange, scalar(1), scalar(8), scalar(2), of(count)), 0);
  EXPECT_EQ(get(count), (Numbers{1, 3, 5, 7}));
  ASSERT_EQ(RUN(aclnnInplaceFillScalar, of(a), scalar(4.5)), 0);
  ASSERT_EQ(RUN(aclnnInplaceZero, of(b)), 0);
  EXPECT_EQ(get(a), (Numbers{4.5, 4.5}));
  EXPECT_EQ(get(b), Numbers(4, 0));
}

Numbers rms_norm(const Numbers& x, const Numbers& gamma, size_t width) {
  Numbers y(x.size());
  for (size_t first = 0; first < x.size(); first += width) {
    double squares = 0;
    for (size_t j = 0; j < width; ++j)
      squares += x[first + j] * x[first + j] / static_cast<double>(width);
    for (size_t j = 0; j < width; ++j)
      y[first + j] = x[first + j] * gamma[j] / std::sqrt(squares + 1e-6);
  }
  return y;
}

TEST_F(Operators, RmsNormRoundsOnceAndItsGradientIsTheDifference) {
  const Numbers x = noise(3 * 8), g = noise(8), up = noise(3 * 8);
  const Array a = put({3, 8}, x), gamma = put({8}, g), y = empty({3, 8}), rstd = empty({3, 1});
  ASSERT_EQ(RUN(aclnnRmsNorm, of(a), of(gamma), 1e-6, of(y), of(rstd)), 0) << aclGetRecentErrMsg();
  expect_near(get(y), rms_norm(x, g, 8), 1e-6);
  const Array d = put({3, 8}, up), dx = empty({3, 8}), dg = empty({8});
  ASSERT_EQ(RUN(aclnnRmsNormGrad, of(d), of(a), of(rstd), of(gamma), of(dx), of(dg)), 0)
      << aclGetRecentErrMsg();
  expect_near(get(dx), differences(x, up, [&](const Numbers& v) { return rms_norm(v, g, 8); }),
              1e-5);
  expect_near(get(dg), differences(g, up, [&](const Numbers& v) { return rms_norm(x, v, 8); }),
              1e-5);
}

TEST_F(Operators, RmsNormWantsItsStatisticsWideAndOfTheRightShape) {
  const Array a = put({2, 16}, noise(32), ACL_BF16), g = put({16}, noise(16), ACL_BF16),
              y = empty({2, 16}, ACL_BF16);
  EXPECT_EQ(RUN(aclnnRmsNorm, of(a), of(g), 1e-6, of(y), of(empty({2}))), 161002);
  EXPECT_EQ(RUN(aclnnRmsNorm, of(a), of(g), 1e-6, of(y), of(empty({2, 1}, ACL_BF16))), 161002);
  const Array r = empty({2, 1});
  EXPECT_EQ(RUN(aclnnRmsNorm, of(a), of(g), 1e-6, of(y), of(r)), 0);
  EXPECT_EQ(RUN(aclnnRmsNormGrad, of(a), of(a), of(r), of(g), of(y), of(empty({16}, ACL_BF16))),
            161002);
}

Numbers layer_norm(const Numbers& x, const Numbers& weight, const Numbers& bias) {
  Numbers y(x.size());
  const size_t width = weight.size();
  const auto n = static_cast<double>(width);
  for (size_t first = 0; first < x.size(); first += width) {
    double sum = 0, squares = 0;
    for (size_t j = 0; j < width; ++j) {
      sum += x[first + j];
      squares += x[first + j] * x[first + j];
    }
    const double variance = squares / n - sum / n * (sum / n);
    for (size_t j = 0; j < width; ++j)
      y[first + j] = (x[first + j] - sum / n) / std::sqrt(variance + 1e-5) * weight[j] + bias[j];
  }
  return y;
}

TEST_F(Operators, LayerNormRoundsOnceAndItsGradientIsTheDifference) {
  const Numbers x = noise(3 * 8), w = noise(8), b = noise(8), up = noise(3 * 8);
  const Array a = put({3, 8}, x), weight = put({8}, w), bias = put({8}, b), y = empty({3, 8}),
              mean = empty({3, 1}), rstd = empty({3, 1});
  ASSERT_EQ(
      RUN(aclnnLayerNorm, of(a), ints({8}), of(weight), of(bias), 1e-5, of(y), of(mean), of(rstd)),
      0)
      << aclGetRecentErrMsg();
  expect_near(get(y), layer_norm(x, w, b), 1e-6);
  const Array d = put({3, 8}, up), dx = empty({3, 8}), dw = empty({8}), db = empty({8});
  const auto backward = [&](const Array& of_mean, std::initializer_list<bool> wanted) {
    const bool* const mask = wanted.begin();
    aclBoolArray* const bools = aclCreateBoolArray(mask, wanted.size());
    const aclnnStatus status = RUN(aclnnLayerNormBackward, of(d), of(a), ints({8}), of(of_mean),
                                   of(rstd), of(weight), of(bias), bools, of(dx), of(dw), of(db));
    aclDestroyBoolArray(bools);
    return status;
  };
  ASSERT_EQ(backward(mean, {true, true, true}), 0) << aclGetRecentErrMsg();
  expect_near(get(dx), differences(x, up, [&](const Numbers& v) { return layer_norm(v, w, b); }),
              1e-5);
  expect_near(get(dw), differences(w, up, [&](const Numbers& v) { return layer_norm(x, v, b); }),
              1e-5);
  expect_near(get(db), differences(b, up, [&](const Numbers& v) { return layer_norm(x, w, v); }),
              1e-5);
  EXPECT_EQ(backward(mean, {true, true}), 161002);
  EXPECT_EQ(backward(empty({2, 1}), {true, true, true}), 161002);
  EXPECT_EQ(backward(empty({3, 1}, ACL_BF16), {true, true, true}), 161002);
  EXPECT_EQ(
      RUN(aclnnLayerNorm, of(a), ints({4}), of(weight), of(bias), 1e-5, of(y), of(mean), of(rstd)),
      161002);
}

TEST_F(Operators, GeluAndItsGradientAreOfTheFormThatIsNamed) {
  const Numbers x = noise(40), up = noise(40);
  const Array a = put({40}, x), d = put({40}, up), y = empty({40}), dx = empty({40});
  char none[] = "none", tanh[] = "tanh", other[] = "quick";
  for (const bool exact : {true, false}) {
    const auto gelu = [&](const Numbers& values) {
      Numbers result;
      for (const double v : values) {
        result.push_back(
            exact ? v * std::erfc(-v * std::sqrt(0.5)) / 2
                  : v / (1 + std::exp(-2 * std::sqrt(2 / M_PI) * (v + 0.044715 * std::pow(v, 3)))));
      }
      return result;
    };
    ASSERT_EQ(RUN(aclnnGeluV2, of(a), int64_t{exact ? 0 : 1}, of(y)), 0);
    expect_near(get(y), gelu(x), 1e-6);
    ASSERT_EQ(RUN(aclnnGeluBackwardV2, of(d), of(a), exact ? none : tanh, of(dx)), 0);
    expect_near(get(dx), differences(x, up, gelu), 1e-5);
  }
  EXPECT_EQ(RUN(aclnnGeluBackwardV2, of(d), of(a), other, of(dx)), 161002);
  ASSERT_EQ(RUN(aclnnTanh, of(a), of(y)), 0);
  EXPECT_NEAR(get(y)[3], std::tanh(x[3]), 1e-6);
}

Numbers swiglu(const Numbers& x, size_t half) {
  Numbers y;
  for (size_t first = 0; first < x.size(); first += 2 * half) {
    for (size_t j = 0; j < half; ++j)
      y.push_back(x[first + j] / (1 + std::exp(-x[first + j])) * x[first + half + j]);
  }
  return y;
}

TEST_F(Operators, SwiGluTakesGateAndUpSideBySide) {
  const Numbers x = noise(2 * 6), up = noise(2 * 3);
  const Array a = put({2, 6}, x), y = empty({2, 3}), d = put({2, 3}, up), dx = empty({2, 6});
  ASSERT_EQ(RUN(aclnnSwiGlu, of(a), int64_t{-1}, of(y)), 0);
  expect_near(get(y), swiglu(x, 3), 1e-6);
  ASSERT_EQ(RUN(aclnnSwiGluGrad, of(d), of(a), int64_t{1}, of(dx)), 0);
  expect_near(get(dx), differences(x, up, [](const Numbers& v) { return swiglu(v, 3); }), 1e-5);
  EXPECT_EQ(RUN(aclnnSwiGlu, view(a, {6, 2}, {1, 6}), int64_t{0}, of(empty({3, 2}))), 161002);
}

TEST_F(Operators, RotaryTurnsHalvesAndItsGradientTurnsBack) {
  // One token, one head, width 4: elements 0 and 2 are a pair, 1 and 3 another.
  const double c0 = std::cos(0.3), s0 = std::sin(0.3), c1 = std::cos(1.1), s1 = std::sin(1.1);
  const Array x = put({1, 1, 1, 4}, {1, 2, 3, 4}), out = empty({1, 1, 1, 4}),
              back = empty({1, 1, 1, 4});
  const Array c = put({1, 1, 1, 4}, {c0, c1, c0, c1}), s = put({1, 1, 1, 4}, {s0, s1, s0, s1});
  ASSERT_EQ(RUN(aclnnRotaryPositionEmbedding, of(x), of(c), of(s), int64_t{0}, of(out)), 0);
  expect_near(get(out), {c0 - 3 * s0, 2 * c1 - 4 * s1, 3 * c0 + s0, 4 * c1 + 2 * s1}, 1e-6);
  const Array dc = empty({1, 1, 1, 4}), ds = empty({1, 1, 1, 4});
  EXPECT_EQ(RUN(aclnnRotaryPositionEmbeddingGrad, of(out), of(c), of(s), nullptr, int64_t{0},
                of(back), nullptr, of(ds)),
            161001);
  ASSERT_EQ(RUN(aclnnRotaryPositionEmbeddingGrad, of(out), of(c), of(s), nullptr, int64_t{0},
                of(back), of(dc), of(ds)),
            0);
  expect_near(get(back), {1, 2, 3, 4}, 1e-6);
  ASSERT_EQ(RUN(aclnnRotaryPositionEmbedding, of(x), of(c), of(s), int64_t{1}, of(out)), 0);
  expect_near(get(out), {c0 - 2 * s0, 2 * c1 + s1, 3 * c0 - 4 * s0, 4 * c1 + 3 * s1}, 1e-6);
}

TEST_F(Operators, ReductionsGoOverNamedDimensions) {
  const Array a = put({2, 3}, {1, 2, 3, 4, 5, 9}), rows = empty({2}), kept = empty({1, 3}),
              all = empty({});
  const Array at = empty({2}, ACL_INT64), most = empty({2});
  ASSERT_EQ(RUN(aclnnReduceSum, of(a), ints({1}), false, ACL_FLOAT, of(rows)), 0);
  EXPECT_EQ(get(rows), (Numbers{6, 18}));
  ASSERT_EQ(RUN(aclnnMean, of(a), ints({0}), true, ACL_FLOAT, of(kept)), 0);
  EXPECT_EQ(get(kept), (Numbers{2.5, 3.5, 6}));
  ASSERT_EQ(RUN(aclnnLinalgVectorNorm, of(a), scalar(2), ints({}), false, ACL_FLOAT, of(all)), 0);
  expect_near(get(all), {std::sqrt(1 + 4 + 9 + 16 + 25 + 81)}, 1e-6);
  ASSERT_EQ(RUN(aclnnLogSumExp, of(a), ints({-1}), false, of(rows)), 0);
  expect_near(get(rows),
              {std::log(std::exp(1) + std::exp(2) + std::exp(3)),
               9 + std::log1p(std::exp(-4) + std::exp(-5))},
              1e-6);
  ASSERT_EQ(RUN(aclnnMaxDim, of(a), int64_t{1}, false, of(most), of(at)), 0);
  EXPECT_EQ(get(at), (Numbers{2, 2}));
  ASSERT_EQ(RUN(aclnnCumsum, of(a), int64_t{1}, ACL_FLOAT, of(a)), 0);
  EXPECT_EQ(get(a), (Numbers{1, 3, 6, 4, 9, 18}));
}

TEST_F(Operators, TopkIsSortedAndItsPlacesAre64Bits) {
  const Array a = put({5}, {3, 9, 1, 9, 4}), v = empty({3}), i = empty({3}, ACL_INT64);
  EXPECT_EQ(RUN(aclnnTopk, of(a), int64_t{3}, int64_t{0}, true, false, of(v), of(i)), 161002);
  EXPECT_EQ(
      RUN(aclnnTopk, of(a), int64_t{3}, int64_t{0}, true, true, of(v), of(empty({3}, ACL_INT32))),
      161002);
  ASSERT_EQ(RUN(aclnnTopk, of(a), int64_t{3}, int64_t{0}, true, true, of(v), of(i)), 0);
  EXPECT_EQ(get(v), (Numbers{9, 9, 4}));
  EXPECT_EQ(get(i), (Numbers{1, 3, 4}));
}

Numbers log_softmax(const Numbers& x, size_t width) {
  Numbers y(x.size());
  for (size_t first = 0; first < x.size(); first += width) {
    double sum = 0;
    for (size_t j = 0; j < width; ++j) sum += std::exp(x[first + j]);
    for (size_t j = 0; j < width; ++j) y[first + j] = x[first + j] - std::log(sum);
  }
  return y;
}

TEST_F(Operators, LogSoftmaxAndTheLossHaveRightGradients) {
  const Numbers x = noise(3 * 4), up = noise(3 * 4);
  const Array a = put({3, 4}, x), y = empty({3, 4}), d = put({3, 4}, up), dx = empty({3, 4});
  ASSERT_EQ(RUN(aclnnLogSoftmax, of(a), int64_t{-1}, of(y)), 0);
  expect_near(get(y), log_softmax(x, 4), 1e-6);
  ASSERT_EQ(RUN(aclnnLogSoftmaxBackward, of(d), of(y), int64_t{-1}, of(dx)), 0);
  expect_near(get(dx), differences(x, up, [](const Numbers& v) { return log_softmax(v, 4); }),
              1e-5);
  const Array target = put({3}, {1, -100, 3}, ACL_INT64), ones = put({4}, Numbers(4, 1)),
              loss = empty({}), total = empty({});
  EXPECT_EQ(
      RUN(aclnnNLLLoss, of(y), of(target), nullptr, int64_t{2}, int64_t{-100}, of(loss), of(total)),
      161001);
  ASSERT_EQ(RUN(aclnnNLLLoss, of(y), of(target), of(ones), int64_t{1}, int64_t{-100}, of(loss),
                of(total)),
            0);
  const Numbers lp = log_softmax(x, 4);
  expect_near(get(loss), {-(lp[1] + lp[11]) / 2}, 1e-6);
  const Array one = put({}, {1});
  ASSERT_EQ(RUN(aclnnNLLLossBackward, of(one), of(y), of(target), of(ones), int64_t{1},
                int64_t{-100}, of(total), of(dx)),
            0);
  EXPECT_EQ(get(dx), (Numbers{0, -0.5, 0, 0, 0, 0, 0, 0, 0, 0, 0, -0.5}));
}

TEST_F(Operators, AClassThatIsNotThereFailsLate) {
  const Array y = put({1, 2}, {0, 0}), target = put({1}, {2}, ACL_INT64), ones = put({2}, {1, 1}),
              loss = empty({}), total = empty({});
  ASSERT_EQ(RUN(aclnnNLLLoss, of(y), of(target), of(ones), int64_t{2}, int64_t{-100}, of(loss),
                of(total)),
            0);
  EXPECT_EQ(aclrtSynchronizeStream(stream_), 507035);
}

TEST_F(Operators, CrossEntropyIsBothInOne) {
  const Numbers x = noise(2 * 3);
  const Array a = put({2, 3}, x), target = put({2}, {2, 0}, ACL_INT64), loss = empty({}),
              lp = empty({2, 3}), z = empty({}), l = empty({2});
  char mean[] = "mean";
  ASSERT_EQ(RUN(aclnnCrossEntropyLoss, of(a), of(target), nullptr, mean, int64_t{-100}, 0.0, 0.0,
                false, of(loss), of(lp), of(z), of(l)),
            0);
  const Numbers y = log_softmax(x, 3);
  expect_near(get(loss), {-(y[2] + y[3]) / 2}, 1e-6);
  const Array one = put({}, {1}), dx = empty({2, 3});
  ASSERT_EQ(RUN(aclnnCrossEntropyLossGrad, of(one), of(lp), of(target), nullptr, nullptr, nullptr,
                mean, int64_t{-100}, 0.0, 0.0, of(dx)),
            0);
  expect_near(get(dx),
              differences(x, {1},
                          [](const Numbers& v) {
                            const Numbers p = log_softmax(v, 3);
                            return Numbers{-(p[2] + p[3]) / 2};
                          }),
              1e-5);
}

TEST_F(Operators, TablesAreReadAndTheirGradientsAddUp) {
  const Array w = put({3, 2}, {1, 2, 3, 4, 5, 6}), ids = put({2, 2}, {2, 0, 2, 2}, ACL_INT64),
              out = empty({2, 2, 2});
  ASSERT_EQ(RUN(aclnnEmbedding, of(w), of(ids), of(out)), 0);
  EXPECT_EQ(get(out), (Numbers{5, 6, 1, 2, 5, 6, 5, 6}));
  const Array dw = empty({3, 2});
  ASSERT_EQ(
      RUN(aclnnEmbeddingDenseBackward, of(out), of(ids), uint64_t{3}, ~uint64_t{0}, false, of(dw)),
      0);
  EXPECT_EQ(get(dw), (Numbers{1, 2, 0, 0, 15, 18}));
}

TEST_F(Operators, IndicesGatherScatterAndAdd) {
  const Array a = put({2, 3}, {1, 2, 3, 4, 5, 6}), ids = put({2, 1}, {2, 0}, ACL_INT64),
              out = empty({2, 1});
  ASSERT_EQ(RUN(aclnnGather, of(a), int64_t{1}, of(ids), of(out)), 0);
  EXPECT_EQ(get(out), (Numbers{3, 4}));
  ASSERT_EQ(RUN(aclnnScatterAdd, of(a), int64_t{1}, of(ids), of(out), of(a)), 0);
  EXPECT_EQ(get(a), (Numbers{1, 2, 6, 8, 5, 6}));
  const Array rows = put({2}, {1, 1}, ACL_INT32), taken = empty({2, 3});
  ASSERT_EQ(RUN(aclnnIndexSelect, of(a), int64_t{0}, of(rows), of(taken)), 0);
  EXPECT_EQ(get(taken), (Numbers{8, 5, 6, 8, 5, 6}));
  const Array big = put({1, 1}, {4611686018427387904.0}, ACL_INT64),
              one = put({1, 1}, {1}, ACL_INT64), key = empty({1, 1}, ACL_INT64),
              moved = empty({1, 1}, ACL_INT64), first = put({1}, {0}, ACL_INT64);
  ASSERT_EQ(RUN(aclnnAdd, of(big), of(one), scalar(1), of(key)), 0);
  ASSERT_EQ(RUN(aclnnIndexSelect, of(key), int64_t{0}, of(first), of(moved)), 0);
  ASSERT_EQ(RUN(aclnnSub, of(moved), of(big), scalar(1), of(moved)), 0);
  EXPECT_EQ(get(moved), (Numbers{1})) << "64-bit integers are moved as they are";
  ASSERT_EQ(RUN(aclnnIndexAdd, of(a), int64_t{0}, of(rows), of(taken), scalar(-0.5), of(a)), 0);
  EXPECT_EQ(get(a), (Numbers{1, 2, 6, 0, 0, 0}));
  const Array columns = put({1}, {0}, ACL_INT64), column = put({2, 1}, {7, 8});
  ASSERT_EQ(RUN(aclnnInplaceIndexCopy, of(a), int64_t{1}, of(columns), of(column)), 0);
  EXPECT_EQ(get(a), (Numbers{7, 2, 6, 8, 0, 0}));
}

TEST_F(Operators, TheFirstUpdateOfAdamWMovesEachWeightByTheRate) {
  // After one update m/√v is ±1 whatever the gradient: w = w·(1 − lr·wd) − lr·sign.
  const Array w = put({3}, {1, 1, 1}), m = put({3}, Numbers(3, 0)), v = put({3}, Numbers(3, 0));
  const Array g = put({3}, {0.5, -3, 1e-3}), step = put({1}, {0}, ACL_INT64);
  ASSERT_EQ(RUN(aclnnApplyAdamWV2, of(w), of(m), of(v), nullptr, of(g), of(step), 0.125f, 0.9f,
                0.999f, 0.5f, 0.0f, false, false),
            0);
  const double kept = 1 - 0.125 * 0.5;
  expect_near(get(w), {kept - 0.125, kept + 0.125, kept - 0.125}, 1e-6);
  expect_near(get(m), {0.05, -0.3, 1e-4}, 1e-5);
}

TEST_F(Operators, ForeachOperatorsSeeEveryTensor) {
  const Array a = put({2}, {3, 4}), b = put({1}, {-2}), na = empty({1}), nb = empty({1});
  ASSERT_EQ(RUN(aclnnForeachNorm, list({a, b}), scalar(2), list({na, nb})), 0);
  EXPECT_EQ(get(na)[0], 5);
  EXPECT_EQ(get(nb)[0], 2);
  ASSERT_EQ(RUN(aclnnForeachMulScalarV2, list({a, b}), scalar(0.5), list({a, b})), 0);
  EXPECT_EQ(get(a), (Numbers{1.5, 2}));
  const Array found = put({1}, {0}), scale = put({1}, {2});
  ASSERT_EQ(RUN(aclnnForeachNonFiniteCheckAndUnscale, list({a, b}), of(found), of(scale)), 0);
  EXPECT_EQ(get(found)[0], 0);
  EXPECT_EQ(get(a), (Numbers{3, 4}));
  const Array bad = put({1}, {std::numeric_limits<double>::infinity()});
  ASSERT_EQ(RUN(aclnnForeachNonFiniteCheckAndUnscale, list({bad}), of(found), of(scale)), 0);
  EXPECT_EQ(get(found)[0], 1);
}

TEST_F(Operators, DropoutKeepsWhatItsMaskSays) {
  const Array a = put({1000}, Numbers(1000, 1)), mask = empty({128}, ACL_UINT8),
              out = empty({1000}), again = empty({1000});
  ASSERT_EQ(
      RUN(aclnnDropoutGenMaskV2, ints({1000}), 0.25, int64_t{5}, int64_t{1}, ACL_FLOAT, of(mask)),
      0);
  ASSERT_EQ(RUN(aclnnDropoutDoMask, of(a), of(mask), 0.25, of(out)), 0);
  ASSERT_EQ(RUN(aclnnDropoutBackward, of(a), of(mask), 1 / 0.75, of(again)), 0);
  double kept = 0;
  for (const double v : get(out)) {
    EXPECT_TRUE(v == 0 || std::fabs(v - 4.0 / 3) < 1e-6);
    kept += v != 0;
  }
  EXPECT_NEAR(kept, 750, 60);
  EXPECT_EQ(get(again), get(out));
  EXPECT_EQ(RUN(aclnnDropoutDoMask, of(a), of(empty({120}, ACL_UINT8)), 0.25, of(out)), 161002);
}

TEST_F(Operators, SumsInNoFixedOrderBecomeFixedBySwitch) {
  const Array g = put({2000, 1}, noise(2000), ACL_FLOAT),
              ids = put({2000}, Numbers(2000, 0), ACL_INT64);
  std::vector<double> free, fixed;
  for (int i = 0; i < 4; ++i) {
    const Array dw = empty({1, 1});
    ASSERT_EQ(
        RUN(aclnnEmbeddingDenseBackward, of(g), of(ids), uint64_t{1}, ~uint64_t{0}, false, of(dw)),
        0);
    free.push_back(get(dw)[0]);
  }
  ASSERT_EQ(aclrtSetSysParamOpt(ACL_OPT_DETERMINISTIC, 1), 0);
  for (int i = 0; i < 4; ++i) {
    const Array dw = empty({1, 1});
    ASSERT_EQ(
        RUN(aclnnEmbeddingDenseBackward, of(g), of(ids), uint64_t{1}, ~uint64_t{0}, false, of(dw)),
        0);
    fixed.push_back(get(dw)[0]);
  }
  EXPECT_FALSE(free[0] == free[1] && free[1] == free[2] && free[2] == free[3]);
  EXPECT_TRUE(fixed[0] == fixed[1] && fixed[1] == fixed[2] && fixed[2] == fixed[3]);
}

}  // namespace
}  // namespace npu_sim_test
