#include "infer/sampling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "base/error.h"
#include "support/throws.h"

namespace danlu::infer {
namespace sampling_test {

constexpr float kGone = -std::numeric_limits<float>::infinity();

SamplingParams sampling() {
  SamplingParams params;
  params.do_sample = true;
  return params;
}

std::vector<float> logits_of(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

std::vector<int> kept(std::vector<float> logits, const SamplingParams& params,
                      std::vector<int32_t> seen = {}) {
  process_logits(logits, seen, params);
  std::vector<int> ids;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] != kGone) ids.push_back(static_cast<int>(i));
  }
  return ids;
}

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Sampling, TopKKeepsTheKMostLikely) {
  SamplingParams params = sampling();
  params.top_k = 2;
  EXPECT_THAT(kept({1, 4, 3, 2}, params), ElementsAre(1, 2));
}

TEST(Sampling, TopPKeepsTheTokenThatCrossesTheBorder) {
  SamplingParams params = sampling();
  params.top_p = 0.7;  // 0.5 < 0.7, so 0.3 is still needed; 0.5 + 0.3 >= 0.7, so 0.15 is not
  EXPECT_THAT(kept(logits_of({0.15, 0.5, 0.05, 0.3}), params), ElementsAre(1, 3));
}

TEST(Sampling, TopPKeepsTheMostLikelyTokenEvenIfTiny) {
  SamplingParams params = sampling();
  params.top_p = 1e-9;
  EXPECT_THAT(kept(logits_of({0.2, 0.5, 0.3}), params), ElementsAre(1));
}

TEST(Sampling, TopPOfManyTokensIsWhatSortingAllOfThemKeeps) {
  std::mt19937 random(7);
  for (const auto& [top_p, spread] : std::vector<std::pair<double, float>>{
           {0.05, 10}, {0.5, 10}, {0.9, 10}, {0.999, 10}, {0.9999999, 10}, {0.9, 80}}) {
    std::vector<float> logits(3000);
    // 160 different ones: ties, which go by id.
    for (float& logit : logits) logit = static_cast<float>(random() % 160) * spread / 160;
    std::vector<int> order(logits.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return logits[a] > logits[b]; });
    long double total = 0, before = 0;
    for (const float logit : logits) total += std::exp(static_cast<long double>(logit));
    std::vector<int> expected;
    for (const int id : order) {
      if (!expected.empty() && before >= top_p * total) break;
      expected.push_back(id);
      before += std::exp(static_cast<long double>(logits[id]));
    }
    std::sort(expected.begin(), expected.end());
    SamplingParams params = sampling();
    params.top_p = top_p;
    EXPECT_EQ(kept(logits, params), expected) << top_p;
  }
}

TEST(Sampling, TopPEndsAmongTokensFarBelowTheLikeliest) {
  std::vector<float> logits(3001, -33);
  logits[0] = 0;
  const double weight = std::exp(-33.0);
  SamplingParams params = sampling();
  params.top_p = (1 + 1499.5 * weight) / (1 + 3000 * weight);
  std::vector<int> expected(1501);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(kept(logits, params), expected);
}

TEST(Sampling, MinPIsRelativeToTheMostLikely) {
  SamplingParams params = sampling();
  params.min_p = 0.25;  // 0.25 * 0.5 = 0.125
  EXPECT_THAT(kept(logits_of({0.13, 0.5, 0.12, 0.25}), params), ElementsAre(0, 1, 3));
}

TEST(Sampling, TemperatureComesBeforeTopP) {
  SamplingParams params = sampling();
  params.top_p = 0.75;
  // At temperature 1 the first token holds 0.8 alone. At 4 the ratio 8:1 becomes 1.68:1, so both
  // are needed: 1.68 / (1.68 + 1 + 1) = 0.457 < 0.75, + 0.27 = 0.73 < 0.75: all three.
  EXPECT_THAT(kept(logits_of({0.8, 0.1, 0.1}), params), ElementsAre(0));
  params.temperature = 4;
  EXPECT_THAT(kept(logits_of({0.8, 0.1, 0.1}), params), ElementsAre(0, 1, 2));
}

TEST(Sampling, RepetitionPenaltyDividesPositiveAndMultipliesNegativeLogitsOnce) {
  SamplingParams params;
  params.repetition_penalty = 2;
  std::vector<float> logits{4, -3, 5};
  const std::vector<int32_t> seen{0, 1, 0, 1};
  process_logits(logits, seen, params);
  EXPECT_THAT(logits, ElementsAre(2, -6, 5));
}

TEST(Sampling, GreedyTakesTheFirstLargestAndIgnoresTemperature) {
  SamplingParams params;
  params.temperature = 0.1;
  std::vector<float> logits{1, 7, 7, 2};
  EXPECT_EQ(sample_token(logits, {}, params, 0, 0, at::kFloat), 1);
}

TEST(Sampling, TheLargestAndANaNAreFoundWhereverTheyStand) {
  std::mt19937_64 rng(11);
  for (const size_t size : {1, 2, 15, 16, 17, 63, 1023, 1024, 1025, 1040, 2047, 2048, 5000}) {
    std::vector<float> logits(size);
    // Few values, so that many are the largest; some ruled out.
    for (float& logit : logits) logit = rng() % 4 == 0 ? kGone : static_cast<float>(rng() % 6) - 7;
    logits[rng() % size] = -5;
    const auto expected = std::max_element(logits.begin(), logits.end()) - logits.begin();
    EXPECT_EQ(sample_token(logits, {}, SamplingParams{}, 0, 0, at::kFloat), expected) << size;
    logits[rng() % size] = std::nanf("");
    EXPECT_THROW(require_usable_logits(logits, at::kFloat), NumericError) << size;
  }
}

TEST(Sampling, KeepsTheKLargestOfAnyNumber) {
  std::mt19937_64 rng(12);
  std::vector<float> logits(3000);
  for (float& logit : logits) logit = static_cast<float>(rng() % 100000);
  for (const int64_t k : {1, 2, 50, 1023, 1024, 1025, 2999, 3000, 4000}) {
    std::vector<float> expected = logits;
    std::sort(expected.begin(), expected.end(), std::greater<float>());
    const float least = expected[static_cast<size_t>(std::min<int64_t>(k, 3000) - 1)];
    SamplingParams params = sampling();
    params.top_k = k;
    std::vector<float> cut = logits;
    process_logits(cut, {}, params);
    for (size_t i = 0; i < logits.size(); ++i)
      EXPECT_EQ(cut[i], logits[i] < least ? kGone : logits[i]) << "k " << k << " token " << i;
  }
}

TEST(Sampling, ParametersThatLeaveNoProbabilitiesAreAnError) {
  for (const auto& [temperature, penalty] :
       {std::pair{1e-39, 1.0}, {1e-46, 1.0}, {1.0, 1e-39}, {1e-39, 1e-39}}) {
    SamplingParams params = sampling();
    params.temperature = temperature;
    params.repetition_penalty = penalty;
    std::vector<float> logits{1, 2, 3};
    const std::vector<int32_t> seen{0, 1, 2};
    EXPECT_THAT(
        test::error_of<UsageError>([&] { sample_token(logits, seen, params, 0, 0, at::kFloat); }),
        HasSubstr("out of the range of f32"));
  }
}

TEST(Sampling, DrawsInProportionToTheProbabilities) {
  const std::vector<double> probabilities{0.1, 0.6, 0.3};
  std::vector<int> counts(3);
  constexpr int kDraws = 20000;
  for (int step = 0; step < kDraws; ++step) {
    std::vector<float> logits = logits_of(probabilities);
    ++counts[static_cast<size_t>(
        sample_token(logits, {}, sampling(), 0, static_cast<uint64_t>(step), at::kFloat))];
  }
  for (size_t i = 0; i < 3; ++i) {
    // Five standard deviations of a binomial count; the seed is fixed.
    const double expected = probabilities[i] * kDraws;
    EXPECT_NEAR(counts[i], expected, 5 * std::sqrt(expected * (1 - probabilities[i])));
  }
}

TEST(Sampling, NeverDrawsARemovedToken) {
  SamplingParams params = sampling();
  params.top_k = 1;
  for (uint64_t step = 0; step < 200; ++step) {
    std::vector<float> logits{0.f, 0.1f, 0.f};
    EXPECT_EQ(sample_token(logits, {}, params, 3, step, at::kFloat), 1);
  }
}

TEST(Sampling, TheDrawDependsOnSeedStreamAndStepOnly) {
  EXPECT_EQ(uniform_at(1, 2, 3), uniform_at(1, 2, 3));
  EXPECT_NE(uniform_at(1, 2, 3), uniform_at(2, 2, 3));
  EXPECT_NE(uniform_at(1, 2, 3), uniform_at(1, 3, 3));
  EXPECT_NE(uniform_at(1, 2, 3), uniform_at(1, 2, 4));
}

TEST(Sampling, LogitsThatAreNotNumbersAreAnError) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto sampled = [](std::vector<float> logits, bool do_sample) {
    SamplingParams params;
    params.do_sample = do_sample;
    params.top_p = do_sample ? 0.9 : 1;
    return test::error_of<NumericError>(
        [&] { sample_token(logits, {}, params, 0, 0, at::kFloat); });
  };
  for (const bool do_sample : {false, true}) {
    EXPECT_THAT(sampled({1, std::nanf(""), 2}, do_sample), HasSubstr("NaN logits | its weights"));
    EXPECT_THAT(sampled({1, kInfinity, 2}, do_sample), HasSubstr("infinite logits"));
    EXPECT_THAT(sampled({-kInfinity, -kInfinity}, do_sample), HasSubstr("no finite logits"));
  }
  const auto hint_in = [](at::ScalarType computed_in) {
    const std::vector<float> logits{1, std::nanf("")};
    return test::error_of<NumericError>([&] { require_usable_logits(logits, computed_in); });
  };
  EXPECT_THAT(hint_in(at::kBFloat16), HasSubstr("| try --dtype fp32"));
  EXPECT_THAT(hint_in(at::kFloat),
              AllOf(HasSubstr("| its weights may hold NaN"), Not(HasSubstr("--dtype"))));
  // A model may rule tokens out itself.
  std::vector<float> one_left{-kInfinity, 1};
  EXPECT_EQ(sample_token(one_left, {}, SamplingParams{}, 0, 0, at::kFloat), 1);
}

TEST(Sampling, RejectsValuesOutOfRangeAndNamesThem) {
  SamplingParams params;
  params.top_p = 1.5;
  try {
    params.validate();
    FAIL() << "top_p 1.5 was accepted";
  } catch (const UsageError& e) {
    EXPECT_STREQ(e.what(), "[sampling] top_p must be in (0, 1], got 1.5");
  }
}

}  // namespace sampling_test
}  // namespace danlu::infer
