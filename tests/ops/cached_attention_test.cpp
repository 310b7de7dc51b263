// Attention over pages against the composite over the same keys in f64.
#include "ops/cached_attention.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"
#include "finite_differences.h"
#include "ops/alibi.h"
#include "ops/kernels.h"

namespace danlu::ops {
namespace {

constexpr int64_t kPagedLayers = 2, kPagedDim = 24;

/// Sequences with keys and values in pages; what no token has written is NaN.
struct Pages {
  std::vector<std::vector<at::Tensor>> pages;
  std::vector<at::Tensor> k, v;  ///< of all tokens of each sequence, of layer 1

  Pages(const std::vector<int64_t>& lengths, int64_t heads, at::ScalarType type) {
    uint64_t seed = 1;
    for (const int64_t length : lengths) {
      std::vector<at::Tensor> own;
      for (int64_t at = 0; at < length; at += kPageTokens)
        own.push_back(at::full({kPagedLayers, 2, heads, kPageTokens, kPagedDim},
                               std::numeric_limits<double>::quiet_NaN(), type));
      pages.push_back(own);
      k.push_back(test::random_f64({length, heads, kPagedDim}, seed++).to(type));
      v.push_back(test::random_f64({length, heads, kPagedDim}, seed++).to(type));
    }
  }
  std::vector<CachedSequence> sequences(const std::vector<int64_t>& num_new,
                                        const std::vector<int64_t>& lengths) const {
    std::vector<CachedSequence> result;
    for (size_t s = 0; s < pages.size(); ++s) result.push_back({pages[s], num_new[s], lengths[s]});
    return result;
  }
};

at::Tensor last_of(const std::vector<at::Tensor>& all, const std::vector<int64_t>& counts) {
  std::vector<at::Tensor> parts;
  for (size_t s = 0; s < all.size(); ++s)
    parts.push_back(all[s].narrow(0, all[s].size(0) - counts[s], counts[s]));
  return at::cat(parts);
}

struct PagedCase {
  std::vector<int64_t> before, num_new;
  int64_t window = 0;
  bool alibi = false;
};

const std::vector<PagedCase> kPagedCases{{{0}, {1}},
                                         {{5}, {1}},
                                         {{31}, {1}},
                                         {{32}, {1}},
                                         {{100}, {3}},
                                         {{70, 1, 64, 33}, {1, 1, 1, 1}},
                                         {{0, 40, 0, 7, 50}, {4, 1, 9, 12, 2}},
                                         {{90, 3}, {1, 2}, 40},
                                         {{66, 20}, {1, 1}, 0, true},
                                         {{0, 70}, {12, 20}, 33, true},
                                         // Longer than the parts that threads share.
                                         {{511}, {1}},
                                         {{512, 30}, {1, 1}},
                                         {{1300}, {3}},
                                         {{1100, 3}, {1, 1}, 700},
                                         {{1030, 600}, {1, 2}, 0, true}};

void expect_as_over_all_keys(const PagedCase& c, at::ScalarType type, int64_t heads,
                             int64_t kv_heads, double tolerance) {
  std::vector<int64_t> lengths;
  for (size_t s = 0; s < c.before.size(); ++s) lengths.push_back(c.before[s] + c.num_new[s]);
  const Pages pages(lengths, kv_heads, type);
  AttentionOptions options;
  options.scale = 0.2;
  options.window = c.window;
  if (c.alibi)
    options.alibi_slopes_Q = at::tensor(alibi_slopes(heads), at::TensorOptions(at::kFloat));
  store_in_pages(at::cat(pages.k), at::cat(pages.v), pages.sequences(lengths, lengths), 1);
  const auto sequences = pages.sequences(c.num_new, lengths);
  const at::Tensor k = last_of(pages.k, c.num_new), v = last_of(pages.v, c.num_new);
  store_in_pages(k, v, sequences, 1);
  Segments segments{{0}, {0}};
  for (size_t s = 0; s < lengths.size(); ++s) {
    EXPECT_TRUE(at::equal(gathered(sequences[s], 1, 0), pages.k[s]));
    EXPECT_TRUE(at::equal(gathered(sequences[s], 1, 1), pages.v[s]));
    segments.q_starts.push_back(segments.q_starts.back() + c.num_new[s]);
    segments.k_starts.push_back(segments.k_starts.back() + lengths[s]);
  }
  const at::Tensor q = test::random_f64({k.size(0), heads, kPagedDim}, 99).to(type);
  const at::Tensor seen = cached_attention(q, k, v, sequences, 1, options);
  EXPECT_EQ(seen.scalar_type(), type);
  const at::Tensor exact = oracle::attention(q.to(at::kDouble), at::cat(pages.k).to(at::kDouble),
                                             at::cat(pages.v).to(at::kDouble), segments, options);
  EXPECT_LT((seen.to(at::kDouble) - exact).abs().max().item<double>(), tolerance)
      << type << " " << heads << "/" << kv_heads << " before " << c.before[0];
}

TEST(CachedAttention, IsThatOverAllKeys) {
  for (const PagedCase& c : kPagedCases) {
    for (const auto& [heads, kv_heads] : {std::pair<int64_t, int64_t>(4, 4), {6, 2}, {7, 1}}) {
      expect_as_over_all_keys(c, at::kFloat, heads, kv_heads, 2e-6);
      // One rounding of results below 4, and, where keys are gathered, of the weights.
      expect_as_over_all_keys(c, at::kBFloat16, heads, kv_heads, 0.02);
      expect_as_over_all_keys(c, at::kHalf, heads, kv_heads, 0.003);
      expect_as_over_all_keys(c, at::kDouble, heads, kv_heads, 1e-12);
    }
  }
}

TEST(CachedAttention, AnyNumberOfThreadsGivesTheSameBits) {
  const std::vector<int64_t> lengths{1600, 40}, num_new{1, 1};
  const Pages pages(lengths, 1, at::kBFloat16);
  store_in_pages(at::cat(pages.k), at::cat(pages.v), pages.sequences(lengths, lengths), 1);
  const at::Tensor k = last_of(pages.k, num_new), v = last_of(pages.v, num_new);
  const at::Tensor q = test::random_f64({2, 7, kPagedDim}, 5).to(at::kBFloat16);
  const int before = at::get_num_threads();
  const auto result = [&](int threads) {
    at::set_num_threads(threads);
    return cached_attention(q, k, v, pages.sequences(num_new, lengths), 1,
                            {.scale = 0.2, .alibi_slopes_Q = {}});
  };
  const at::Tensor one = result(1);
  for (const int threads : {2, 3, 5}) EXPECT_TRUE(at::equal(result(threads), one)) << threads;
  at::set_num_threads(before);
}

/// Kernels write and read pages by address: what does not fit them would fall beside them.
TEST(CachedAttention, RefusesWhatDoesNotFitThePages) {
  const std::vector<int64_t> lengths{40, 3};
  const Pages pages(lengths, 2, at::kBFloat16);
  const at::Tensor k = last_of(pages.k, {1, 1}), v = last_of(pages.v, {1, 1});
  const at::Tensor q = test::random_f64({2, 4, kPagedDim}, 5).to(at::kBFloat16);
  const auto sequences = pages.sequences({1, 1}, lengths);
  store_in_pages(k, v, sequences, 1);
  ASSERT_NO_THROW(cached_attention(q, k, v, sequences, 1, {}));

  const auto both_refuse = [&](const at::Tensor& bad_k, const at::Tensor& bad_v,
                               const std::vector<CachedSequence>& bad, int64_t layer) {
    EXPECT_THROW(store_in_pages(bad_k, bad_v, bad, layer), ModelError);
    EXPECT_THROW(cached_attention(q, bad_k, bad_v, bad, layer, {}), ModelError);
  };
  both_refuse(k.to(at::kFloat), v.to(at::kFloat), sequences, 1);
  both_refuse(k, v.to(at::kFloat), sequences, 1);
  both_refuse(k.narrow(1, 0, 1), v.narrow(1, 0, 1), sequences, 1);
  both_refuse(k.narrow(2, 0, 8), v.narrow(2, 0, 8), sequences, 1);
  both_refuse(k, v.narrow(0, 0, 1), sequences, 1);
  both_refuse(k, v, sequences, kPagedLayers);
  both_refuse(k, v, sequences, -1);
  both_refuse(k, v, pages.sequences({1, 2}, lengths), 1);
  both_refuse(k, v, pages.sequences({1, 1}, {65, 3}), 1);
  both_refuse(k, v, {{{}, 1, 1}, sequences[1]}, 1);
  EXPECT_THROW(gathered({sequences[0].pages, 0, 65}, 1, 0), ModelError);
  EXPECT_THROW(gathered(sequences[0], kPagedLayers, 0), ModelError);
  EXPECT_THROW(cached_attention(q.narrow(1, 0, 3), k, v, sequences, 1, {}), ModelError);
  EXPECT_THROW(cached_attention(q.narrow(2, 0, 8), k, v, sequences, 1, {}), ModelError);
  EXPECT_THROW(cached_attention(q.to(at::kFloat), k, v, sequences, 1, {}), ModelError);
  EXPECT_THROW(cached_attention(q, k, v, sequences, 1, {.alibi_slopes_Q = at::ones({3})}),
               ModelError);
}

/// In a key that is seen, in whole vectors and in the tail.
TEST(CachedAttention, NonFiniteNumbersReachTheResult) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const int64_t place : {0, 33, 39}) {
      for (const bool in_keys : {true, false}) {
        Pages pages({40}, 1, type);
        const at::Tensor spoiled = in_keys ? pages.k[0] : pages.v[0];
        spoiled[place][0][kPagedDim - 1].fill_(std::numeric_limits<double>::quiet_NaN());
        store_in_pages(pages.k[0], pages.v[0], pages.sequences({40}, {40}), 1);
        const at::Tensor q = test::random_f64({1, 2, kPagedDim}, 5).to(type);
        const at::Tensor seen = cached_attention(q, last_of(pages.k, {1}), last_of(pages.v, {1}),
                                                 pages.sequences({1}, {40}), 1, {});
        EXPECT_TRUE(seen.isnan().any().item<bool>()) << type << ' ' << place << ' ' << in_keys;
      }
    }
  }
}

TEST(CachedAttention, TheCompositeReadsPagesToo) {
  const Kernels before = kernels();
  set_kernels(Kernels::kComposite);
  for (const PagedCase& c : kPagedCases) expect_as_over_all_keys(c, at::kFloat, 6, 2, 2e-6);
  set_kernels(before);
}

}  // namespace
}  // namespace danlu::ops
