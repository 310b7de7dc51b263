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

/// Sequences with keys and values in pages, in slabs of three and in no order; what no token has
/// written is NaN.
struct PagedTokens {
  Pages pages;
  std::vector<std::vector<int32_t>> tables;
  std::vector<at::Tensor> k, v;  ///< of all tokens of each sequence, of layer 1

  PagedTokens(const std::vector<int64_t>& lengths, int64_t heads, at::ScalarType type,
              int64_t value_dim = kPagedDim)
      : pages{{kPagedLayers, heads, kPagedDim, value_dim}, 3, {}} {
    uint64_t seed = 1;
    int64_t count = 0;
    for (const int64_t length : lengths) count += (length + kPageTokens - 1) / kPageTokens;
    while (pages.count() < count) {
      pages.slabs.push_back(at::full({pages.per_slab, pages.shape.elements()},
                                     std::numeric_limits<double>::quiet_NaN(), type));
    }
    // 7 is prime to every number of pages below but its multiples, which become one more.
    const int64_t all = pages.count() % 7 == 0 ? pages.count() - 1 : pages.count();
    int64_t next = 0;
    for (const int64_t length : lengths) {
      std::vector<int32_t>& own = tables.emplace_back();
      for (int64_t at = 0; at < length; at += kPageTokens, ++next)
        own.push_back(static_cast<int32_t>(all == 1 || next >= all ? next : next * 7 % all));
      k.push_back(test::random_f64({length, heads, kPagedDim}, seed++).to(type));
      v.push_back(test::random_f64({length, heads, value_dim}, seed++).to(type));
    }
  }
  CachedSequences sequences(const std::vector<int64_t>& num_new,
                            const std::vector<int64_t>& lengths) const {
    return cached_sequences(tables, num_new, lengths, at::kCPU);
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
                             int64_t kv_heads, double tolerance, int64_t value_dim = kPagedDim) {
  std::vector<int64_t> lengths;
  for (size_t s = 0; s < c.before.size(); ++s) lengths.push_back(c.before[s] + c.num_new[s]);
  const PagedTokens tokens(lengths, kv_heads, type, value_dim);
  AttentionOptions options;
  options.scale = 0.2;
  options.window = c.window;
  if (c.alibi)
    options.alibi_slopes_Q = at::tensor(alibi_slopes(heads), at::TensorOptions(at::kFloat));
  store_in_pages(at::cat(tokens.k), at::cat(tokens.v), tokens.pages,
                 tokens.sequences(lengths, lengths), 1);
  const auto sequences = tokens.sequences(c.num_new, lengths);
  const at::Tensor k = last_of(tokens.k, c.num_new), v = last_of(tokens.v, c.num_new);
  store_in_pages(k, v, tokens.pages, sequences, 1);
  Segments segments{{0}, {0}};
  for (size_t s = 0; s < lengths.size(); ++s) {
    const auto sequence = static_cast<int64_t>(s);
    EXPECT_TRUE(at::equal(gathered(tokens.pages, sequences, sequence, 1, 0), tokens.k[s]));
    EXPECT_TRUE(at::equal(gathered(tokens.pages, sequences, sequence, 1, 1), tokens.v[s]));
    segments.q_starts.push_back(segments.q_starts.back() + c.num_new[s]);
    segments.k_starts.push_back(segments.k_starts.back() + lengths[s]);
  }
  const at::Tensor q = test::random_f64({k.size(0), heads, kPagedDim}, 99).to(type);
  const at::Tensor seen = cached_attention(q, k, v, tokens.pages, sequences, 1, options);
  EXPECT_EQ(seen.scalar_type(), type);
  const at::Tensor exact = oracle::attention(q.to(at::kDouble), at::cat(tokens.k).to(at::kDouble),
                                             at::cat(tokens.v).to(at::kDouble), segments, options);
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
      for (const int64_t value_dim : {8, 40}) {
        expect_as_over_all_keys(c, at::kFloat, heads, kv_heads, 2e-6, value_dim);
        expect_as_over_all_keys(c, at::kDouble, heads, kv_heads, 1e-12, value_dim);
      }
    }
  }
}

TEST(CachedAttention, AnyNumberOfThreadsGivesTheSameBits) {
  const std::vector<int64_t> lengths{1600, 40}, num_new{1, 1};
  const PagedTokens tokens(lengths, 1, at::kBFloat16);
  store_in_pages(at::cat(tokens.k), at::cat(tokens.v), tokens.pages,
                 tokens.sequences(lengths, lengths), 1);
  const at::Tensor k = last_of(tokens.k, num_new), v = last_of(tokens.v, num_new);
  const at::Tensor q = test::random_f64({2, 7, kPagedDim}, 5).to(at::kBFloat16);
  const int before = at::get_num_threads();
  const auto result = [&](int threads) {
    at::set_num_threads(threads);
    return cached_attention(q, k, v, tokens.pages, tokens.sequences(num_new, lengths), 1,
                            {.scale = 0.2, .alibi_slopes_Q = {}});
  };
  const at::Tensor one = result(1);
  for (const int threads : {2, 3, 5}) EXPECT_TRUE(at::equal(result(threads), one)) << threads;
  at::set_num_threads(before);
}

/// Kernels write and read pages by address: what does not fit them would fall beside them.
TEST(CachedAttention, RefusesWhatDoesNotFitThePages) {
  const std::vector<int64_t> lengths{40, 3};
  const PagedTokens tokens(lengths, 2, at::kBFloat16);
  const Pages& pages = tokens.pages;
  const at::Tensor k = last_of(tokens.k, {1, 1}), v = last_of(tokens.v, {1, 1});
  const at::Tensor q = test::random_f64({2, 4, kPagedDim}, 5).to(at::kBFloat16);
  const CachedSequences sequences = tokens.sequences({1, 1}, lengths);
  store_in_pages(k, v, pages, sequences, 1);
  ASSERT_NO_THROW(cached_attention(q, k, v, pages, sequences, 1, {}));

  const auto both_refuse = [&](const at::Tensor& bad_k, const at::Tensor& bad_v,
                               const CachedSequences& bad, int64_t layer, const Pages& of) {
    EXPECT_THROW(store_in_pages(bad_k, bad_v, of, bad, layer), ModelError);
    EXPECT_THROW(cached_attention(q, bad_k, bad_v, of, bad, layer, {}), ModelError);
  };
  both_refuse(k.to(at::kFloat), v.to(at::kFloat), sequences, 1, pages);
  both_refuse(k, v.to(at::kFloat), sequences, 1, pages);
  both_refuse(k.narrow(1, 0, 1), v.narrow(1, 0, 1), sequences, 1, pages);
  both_refuse(k.narrow(2, 0, 8), v.narrow(2, 0, 8), sequences, 1, pages);
  both_refuse(k, v.narrow(2, 0, 8), sequences, 1, pages);
  both_refuse(k, v.narrow(0, 0, 1), sequences, 1, pages);
  both_refuse(k, v, sequences, kPagedLayers, pages);
  both_refuse(k, v, sequences, -1, pages);
  both_refuse(k, v, tokens.sequences({1, 2}, lengths), 1, pages);
  both_refuse(k, v, tokens.sequences({1, 1}, {65, 3}), 1, pages);
  for (const int32_t page : {-1, 3}) {
    std::vector<std::vector<int32_t>> tables = tokens.tables;
    tables[0][1] = page;
    both_refuse(k, v, cached_sequences(tables, {1, 1}, lengths, at::kCPU), 1, pages);
  }
  CachedSequences bad = sequences;
  bad.tables_BP = bad.tables_BP.to(at::kLong);
  both_refuse(k, v, bad, 1, pages);
  bad = sequences;
  bad.tables_BP = bad.tables_BP.clone();  // which nobody has looked at
  both_refuse(k, v, bad, 1, pages);
  bad.tables_BP = sequences.tables_BP.narrow(0, 0, 1);
  both_refuse(k, v, bad, 1, pages);
  Pages of_other_size = pages;
  of_other_size.per_slab = 2;
  both_refuse(k, v, sequences, 1, of_other_size);
  EXPECT_THROW(gathered(pages, tokens.sequences({0, 1}, {65, 3}), 0, 1, 0), ModelError);
  EXPECT_THROW(gathered(pages, sequences, 0, kPagedLayers, 0), ModelError);
  EXPECT_THROW(gathered(pages, sequences, 2, 1, 0), ModelError);
  EXPECT_THROW(cached_attention(q.narrow(1, 0, 3), k, v, pages, sequences, 1, {}), ModelError);
  EXPECT_THROW(cached_attention(q.narrow(2, 0, 8), k, v, pages, sequences, 1, {}), ModelError);
  EXPECT_THROW(cached_attention(q.to(at::kFloat), k, v, pages, sequences, 1, {}), ModelError);
  EXPECT_THROW(cached_attention(q, k, v, pages, sequences, 1, {.alibi_slopes_Q = at::ones({3})}),
               ModelError);
}

/// In a key that is seen, in whole vectors and in the tail.
TEST(CachedAttention, NonFiniteNumbersReachTheResult) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const int64_t place : {0, 33, 39}) {
      for (const bool in_keys : {true, false}) {
        PagedTokens tokens({40}, 1, type);
        const at::Tensor spoiled = in_keys ? tokens.k[0] : tokens.v[0];
        spoiled[place][0][kPagedDim - 1].fill_(std::numeric_limits<double>::quiet_NaN());
        store_in_pages(tokens.k[0], tokens.v[0], tokens.pages, tokens.sequences({40}, {40}), 1);
        const at::Tensor q = test::random_f64({1, 2, kPagedDim}, 5).to(type);
        const at::Tensor seen = cached_attention(q, last_of(tokens.k, {1}), last_of(tokens.v, {1}),
                                                 tokens.pages, tokens.sequences({1}, {40}), 1, {});
        EXPECT_TRUE(seen.isnan().any().item<bool>()) << type << ' ' << place << ' ' << in_keys;
      }
    }
  }
}

TEST(CachedAttention, PagesOfALatentKeepARowOfEachToken) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const PagedTokens tokens({70, 3}, 1, type, /*value_dim=*/0);
    const CachedSequences sequences = tokens.sequences({70, 3}, {70, 3});
    store_in_pages(at::cat(tokens.k), at::cat(tokens.v), tokens.pages, sequences, 1);
    for (int64_t s = 0; s < 2; ++s) {
      EXPECT_TRUE(
          at::equal(gathered(tokens.pages, sequences, s, 1, 0), tokens.k[static_cast<size_t>(s)]));
      EXPECT_EQ(gathered(tokens.pages, sequences, s, 1, 1).numel(), 0);
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
