// Attention against sums written out one score at a time.
#include "ops/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>

#include "base/error.h"
#include "finite_differences.h"
#include "ops/alibi.h"

namespace danlu::ops {
namespace {

using test::expect_gradients;
using test::random_f64;

struct Case {
  const char* name;
  std::vector<int64_t> q_starts, k_starts;
  int64_t heads, kv_heads, head_dim, window;
  bool alibi;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

/// The definition: for every query, softmax over the keys it may see, one by one.
at::Tensor written_out(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Case& c,
                       const AttentionOptions& options, const std::vector<double>& slopes) {
  at::Tensor out = at::zeros_like(q);
  for (size_t s = 0; s + 1 < c.q_starts.size(); ++s) {
    const int64_t n = c.q_starts[s + 1] - c.q_starts[s], m = c.k_starts[s + 1] - c.k_starts[s];
    for (int64_t i = 0; i < n; ++i) {
      const int64_t position = m - n + i;
      for (int64_t h = 0; h < c.heads; ++h) {
        const int64_t g = h / (c.heads / c.kv_heads);
        const at::Tensor query = q[c.q_starts[s] + i][h];
        std::vector<double> weight(static_cast<size_t>(m), 0);
        double total = 0;
        for (int64_t j = 0; j <= position; ++j) {
          if (c.window > 0 && position - j >= c.window) continue;
          double score = (query * k[c.k_starts[s] + j][g]).sum().item<double>() * options.scale;
          if (c.alibi) score += slopes[static_cast<size_t>(h)] * static_cast<double>(j - position);
          total += weight[static_cast<size_t>(j)] = std::exp(score);
        }
        for (int64_t j = 0; j < m; ++j) {
          out[c.q_starts[s] + i][h] +=
              v[c.k_starts[s] + j][g] * (weight[static_cast<size_t>(j)] / total);
        }
      }
    }
  }
  return out;
}

class Attention : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const Case& c = GetParam();
    q_ = random_f64({c.q_starts.back(), c.heads, c.head_dim}, 1);
    k_ = random_f64({c.k_starts.back(), c.kv_heads, c.head_dim}, 2);
    v_ = random_f64({c.k_starts.back(), c.kv_heads, c.head_dim}, 3);
    slopes_ = alibi_slopes(c.heads);
    options_.scale = 0.7;
    options_.window = c.window;
    if (c.alibi) options_.alibi_slopes_Q = at::tensor(slopes_, at::TensorOptions(at::kDouble));
    segments_ = {c.q_starts, c.k_starts};
  }
  at::Tensor q_, k_, v_;
  std::vector<double> slopes_;
  AttentionOptions options_;
  Segments segments_;
};

TEST_P(Attention, EqualsTheDefinition) {
  const at::Tensor ours = attention(q_, k_, v_, segments_, options_);
  EXPECT_TRUE(
      at::allclose(ours, written_out(q_, k_, v_, GetParam(), options_, slopes_), 1e-6, 1e-7));
}

TEST_P(Attention, GradientOfEveryInputMatchesFiniteDifferences) {
  expect_gradients(
      [&](const auto& in) { return attention(in[0], in[1], in[2], segments_, options_); },
      {q_, k_, v_}, 1e-6);
}

TEST_P(Attention, SegmentsDoNotSeeEachOther) {
  if (segments_.count() < 2) return;
  const at::Tensor before = attention(q_, k_, v_, segments_, options_);
  const int64_t first = segments_.k_starts[1];
  const at::Tensor k = k_.clone(), v = v_.clone();
  k.narrow(0, 0, first).add_(1);
  v.narrow(0, 0, first).add_(1);
  const at::Tensor after = attention(q_, k, v, segments_, options_);
  const int64_t begin = segments_.q_starts[1], count = q_.size(0) - begin;
  EXPECT_TRUE(at::equal(before.narrow(0, begin, count), after.narrow(0, begin, count)));
  EXPECT_FALSE(at::allclose(before.narrow(0, 0, begin), after.narrow(0, 0, begin)));
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, Attention,
    testing::Values(Case{"one_row", {0, 5}, {0, 5}, 2, 2, 3, 0, false},
                    Case{"grouped_queries_packed", {0, 3, 7, 8}, {0, 3, 7, 8}, 6, 2, 3, 0, false},
                    Case{"sliding_window", {0, 7, 9}, {0, 7, 9}, 2, 1, 5, 3, false},
                    Case{"alibi_of_three_heads", {0, 4, 6}, {0, 4, 6}, 3, 3, 4, 0, true},
                    Case{"cached_keys", {0, 1, 3}, {0, 6, 10}, 4, 2, 3, 0, false},
                    Case{"cached_keys_windowed", {0, 1, 3}, {0, 6, 10}, 4, 2, 3, 2, false},
                    Case{"everything", {0, 2, 3, 7}, {0, 5, 6, 10}, 4, 2, 3, 3, true}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(AttentionDtypes, LowPrecisionStaysNearFullPrecision) {
  const at::Tensor q = random_f64({9, 4, 8}, 1), k = random_f64({9, 2, 8}, 2),
                   v = random_f64({9, 2, 8}, 3);
  const Segments segments{{0, 4, 9}, {0, 4, 9}};
  const at::Tensor exact = attention(q, k, v, segments, {0.35, 0, {}});
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const at::Tensor low = attention(q.to(type), k.to(type), v.to(type), segments, {0.35, 0, {}});
    EXPECT_EQ(low.scalar_type(), type);
    EXPECT_TRUE(at::allclose(low.to(at::kDouble), exact, 0.03, 0.03)) << c10::toString(type);
  }
}

TEST(AttentionErrors, NameShapesAndUncoveredTokens) {
  const at::Tensor q = random_f64({4, 3, 2}, 1), k = random_f64({4, 2, 2}, 2),
                   one = random_f64({4, 1, 2}, 3);
  const auto message = [](const at::Tensor& a, const at::Tensor& b, const Segments& segments) {
    try {
      attention(a, b, b, segments, {});
    } catch (const ModelError& error) {
      return std::string(error.what());
    }
    return std::string("(no error)");
  };
  EXPECT_THAT(message(q, k, {{0, 4}, {0, 4}}), testing::HasSubstr("K dividing Q"));
  EXPECT_THAT(message(q, one, {{0, 3}, {0, 4}}), testing::HasSubstr("cover the 4 queries"));
  EXPECT_THAT(message(q, one, {{0, 3, 4}, {0, 2, 4}}),
              testing::HasSubstr("3 queries but only 2 keys"));
  EXPECT_THAT(message(q, one.to(at::kFloat), {{0, 4}, {0, 4}}), testing::HasSubstr("one dtype"));
  EXPECT_THROW(attention(q, one, one, {{0, 4}, {0, 4}}, {1.0, -1, {}}), ModelError);
  // Values may be of another width than keys, but not of other keys or heads.
  EXPECT_NO_THROW(attention(q, one, random_f64({4, 1, 5}, 4), {{0, 4}, {0, 4}}, {}));
  for (const at::Tensor& v : {random_f64({3, 1, 2}, 4), random_f64({4, 3, 2}, 4), q[0]})
    EXPECT_THROW(attention(q, one, v, {{0, 4}, {0, 4}}, {}), ModelError) << v.sizes();
}

TEST(Attention, PartsRefuseWhatDoesNotFit) {
  const at::Tensor q = test::random_f64({6, 4, 8}, 1).to(at::kFloat), k = q.narrow(1, 0, 2);
  const Spans spans{{0, 6, 0, 6, 0}};
  const auto [out, lse] = attention_part(q, k, k, spans, {});
  const at::Tensor delta = attention_delta(out, out);
  ASSERT_NO_THROW(attention_part_backward(q, k, k, spans, {}, out, lse, delta));
  const auto refused = [&](const at::Tensor& bad_k, const at::Tensor& bad_v,
                           const AttentionOptions& options) {
    EXPECT_THROW(attention_part(q, bad_k, bad_v, spans, options), ModelError);
    EXPECT_THROW(attention_part_backward(q, bad_k, bad_v, spans, options, out, lse, delta),
                 ModelError);
  };
  refused(k.to(at::kBFloat16), k.to(at::kBFloat16), {});
  refused(k, k.to(at::kBFloat16), {});
  refused(k, k.narrow(0, 0, 5), {});
  refused(k, k.narrow(1, 0, 1), {});
  refused(q.narrow(1, 0, 3), q.narrow(1, 0, 3), {});
  refused(k, k, {.alibi_slopes_Q = at::ones({3})});
  // The gradient is as wide as values.
  const at::Tensor narrow = k.narrow(2, 0, 5).contiguous();
  const auto [out5, lse5] = attention_part(q, k, narrow, spans, {});
  EXPECT_EQ(out5.size(2), 5);
  EXPECT_NO_THROW(attention_part_backward(q, k, narrow, spans, {}, out5, lse5, delta));
  EXPECT_THROW(attention_part_backward(q, k, narrow, spans, {}, out, lse5, delta), ModelError);
  for (const auto& [d_out, of_keys, sums] : {std::tuple(out.narrow(0, 0, 5), lse, delta),
                                             {out.to(at::kDouble), lse, delta},
                                             {out, lse.narrow(1, 0, 5), delta},
                                             {out, lse, delta.t()},
                                             {out, lse.to(at::kDouble), delta}}) {
    EXPECT_THROW(attention_part_backward(q, k, k, spans, {}, d_out, of_keys, sums), ModelError);
  }
}

TEST(Attention, PartsRefuseKeysAndQueriesThatTwoThreadsWouldWrite) {
  const at::Tensor x = test::random_f64({8, 1, 4}, 1).to(at::kFloat);
  const auto refuses = [&](const Spans& spans) {
    try {
      attention_part(x, x, x, spans, {});
      return false;
    } catch (const ModelError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("overlap"));
      return true;
    }
  };
  const Span first{0, 2, 0, 4, 4}, same{2, 2, 0, 4, 4}, other{4, 2, 4, 4, 4},
      crossing{6, 2, 3, 2, 2};
  EXPECT_FALSE(refuses({first, same, other}));
  EXPECT_FALSE(refuses({other, first, same}));
  EXPECT_TRUE(refuses({first, other, crossing}));
  EXPECT_TRUE(refuses({first, other, same})) << "the same keys must follow each other";
  const Span with_a_query_of_first{1, 2, 4, 4, 4};
  EXPECT_TRUE(refuses({first, with_a_query_of_first}));
}

TEST(AlibiSlopes, FollowThePaperAndItsRuleForOtherCounts) {
  // 8 heads: 1/2, 1/4, …, 1/256.
  const std::vector<double> eight = alibi_slopes(8);
  for (int i = 0; i < 8; ++i) EXPECT_DOUBLE_EQ(eight[i], std::pow(0.5, i + 1));
  // 40 heads (Baichuan-13B): 32 of base 2^(-1/4), then the 1st, 3rd, … 15th of the 64 list (base
  // 2^(-1/8)).
  const std::vector<double> forty = alibi_slopes(40);
  ASSERT_EQ(forty.size(), 40u);
  EXPECT_DOUBLE_EQ(forty[0], std::pow(2.0, -0.25));
  EXPECT_DOUBLE_EQ(forty[31], std::pow(2.0, -8.0));
  EXPECT_DOUBLE_EQ(forty[32], std::pow(2.0, -0.125));
  EXPECT_DOUBLE_EQ(forty[39], std::pow(2.0, -0.125 * 15));
}

}  // namespace
}  // namespace danlu::ops
