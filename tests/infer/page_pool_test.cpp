// The pool of pages, and sequences that come, fork, grow and go in it, against attention over
// everything that each of them was given.
#include "infer/page_pool.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <set>

#include "../ops/finite_differences.h"
#include "base/error.h"
#include "infer/kv_cache.h"

namespace danlu::infer {
namespace page_pool_test {

const ops::PageShape kSmallShape{2, 2, 6, 4};

TEST(PagePool, NeverHoldsMoreThanItsLimit) {
  PagePool pool(kSmallShape, at::kFloat, at::kCPU, 3);
  EXPECT_EQ(pool.pages().slabs.size(), 1u);
  EXPECT_EQ(pool.pages().slabs[0].size(0), 3);
  std::vector<int32_t> held;
  for (int i = 0; i < 3; ++i) held.push_back(pool.take().value());
  EXPECT_EQ(std::set<int32_t>(held.begin(), held.end()).size(), 3u);
  EXPECT_FALSE(pool.has(1));
  EXPECT_FALSE(pool.take().has_value());
  pool.hold(held[1]);
  pool.give_back(held[1]);
  EXPECT_FALSE(pool.take().has_value()) << "one holder of two has gone";
  pool.give_back(held[1]);
  EXPECT_EQ(pool.take(), held[1]);
  for (const int32_t page : held) pool.give_back(page);
  EXPECT_EQ(pool.num_held(), 0);
  EXPECT_TRUE(pool.has(3));
  EXPECT_FALSE(pool.has(4));
  EXPECT_EQ(pool.pages().slabs.size(), 1u);
  EXPECT_THROW(pool.give_back(held[0]), InternalError);
}

TEST(PagePool, GrowsWithoutALimitAndGivesItsMemoryBack) {
  PagePool pool(kSmallShape, at::kFloat, at::kCPU, 0);
  EXPECT_TRUE(pool.pages().slabs.empty());
  std::vector<int32_t> held;
  for (int i = 0; i < 200; ++i) held.push_back(pool.take().value());
  EXPECT_EQ(std::set<int32_t>(held.begin(), held.end()).size(), 200u);
  EXPECT_GT(pool.pages().slabs.size(), 1u);
  EXPECT_LT(pool.pages().slabs.size(), 10u);
  for (const int32_t page : held) pool.give_back(page);
  EXPECT_TRUE(pool.pages().slabs.empty());
  EXPECT_THROW(pool.give_back(held[0]), InternalError);
  pool.give_back(pool.take().value());
}

TEST(PagePool, KeepsSoManyWithoutALimit) {
  PagePool pool(kSmallShape, at::kFloat, at::kCPU, 0);
  pool.keep_up_to(3);
  std::vector<int32_t> lost, held;
  pool.on_loss([&](int32_t page) { lost.push_back(page); });
  for (int i = 0; i < 5; ++i) held.push_back(pool.take().value());
  for (const int32_t page : held) pool.keep(page);
  for (const int32_t page : held) pool.give_back(page);
  EXPECT_EQ(lost, (std::vector<int32_t>{held[0], held[1]}));
  EXPECT_EQ(pool.num_held(), 0);
  EXPECT_FALSE(pool.pages().slabs.empty()) << "three are kept";
  pool.hold(held[2]);
  std::set<int32_t> taken = {held[2]};
  while (taken.size() < 300) {
    const int32_t page = pool.take().value();
    EXPECT_TRUE(taken.insert(page).second) << page << " is held twice";
  }
  EXPECT_EQ(lost, (std::vector<int32_t>{held[0], held[1], held[3], held[4]}));
  for (const int32_t page : taken) pool.give_back(page);
  EXPECT_EQ(pool.num_held(), 0);
}

TEST(PagePool, PagesOfInferenceAreWrittenOutsideOfItToo) {
  PagePool pool(kSmallShape, at::kFloat, at::kCPU, 0);
  std::optional<int32_t> first;
  {
    const c10::InferenceMode inference;
    first = pool.take();
  }
  pool.pages().page(*first).fill_(3);
  const int32_t second = pool.take().value();
  pool.copy(*first, second);
  EXPECT_EQ(pool.pages().page(second)[0].item<float>(), 3);
}

TEST(PagePool, RefusesPagesOfNothing) {
  EXPECT_THROW(PagePool({0, 2, 6, 4}, at::kFloat, at::kCPU, 0), InternalError);
  EXPECT_THROW(PagePool(kSmallShape, at::kFloat, at::kCPU, -1), InternalError);
}

/// What a sequence was given: keys and values of each layer, a tensor for each pass.
struct Given {
  std::vector<std::vector<at::Tensor>> k, v;
  int64_t length = 0;
  Given() : k(2), v(2) {}
};

/// Softmax of queries over all keys up to their own place, one after the other in double.
void expect_naive(const at::Tensor& got, const at::Tensor& q, const Given& given, size_t layer,
                  const ops::AttentionOptions& options) {
  const at::Tensor k = at::cat(given.k[layer]).to(at::kDouble).contiguous(),
                   v = at::cat(given.v[layer]).to(at::kDouble).contiguous(),
                   queries = q.to(at::kDouble).contiguous(), ours = got.to(at::kDouble);
  const int64_t n = q.size(0), heads = q.size(1), dim = k.size(2), value_dim = v.size(2);
  const auto keys = k.accessor<double, 3>(), values = v.accessor<double, 3>(),
             query = queries.accessor<double, 3>();
  for (int64_t i = 0; i < n; ++i) {
    const int64_t place = k.size(0) - n + i;
    const int64_t first = options.window > 0 ? std::max<int64_t>(0, place + 1 - options.window) : 0;
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t g = h / (heads / k.size(1));
      std::vector<double> weights, sums(static_cast<size_t>(value_dim), 0);
      double total = 0;
      for (int64_t j = first; j <= place; ++j) {
        double score = 0;
        for (int64_t d = 0; d < dim; ++d) score += query[i][h][d] * keys[j][g][d];
        const double weight = std::exp(score * options.scale);
        total += weight;
        for (int64_t d = 0; d < value_dim; ++d)
          sums[static_cast<size_t>(d)] += weight * values[j][g][d];
      }
      for (int64_t d = 0; d < value_dim; ++d)
        ASSERT_NEAR(ours[i][h][d].item<double>(), sums[static_cast<size_t>(d)] / total, 2e-5)
            << "query " << i << ", head " << h;
    }
  }
}

/// A cache and what its sequences were given, changed together at random.
class Changing {
 public:
  Changing(int64_t max_pages, unsigned seed)
      : cache_(kSmallShape, at::kFloat, at::kCPU, max_pages), random_(seed) {}

  void change() {
    const int64_t kind = below(10);
    if (given_.empty() || (kind == 0 && given_.size() < 8)) {
      given_[cache_.add()] = {};
    } else if (kind == 1 && given_.size() < 8) {
      const SequenceId parent = any();
      given_[cache_.fork(parent)] = Given(given_.at(parent));
    } else if (kind == 2) {
      forget(any());
    } else if (kind == 3) {
      cut(any());
    } else {
      grow();
    }
    check_counts();
  }
  void forget_all() {
    while (!given_.empty()) forget(given_.begin()->first);
    EXPECT_EQ(cache_.pool().num_held(), 0);
    EXPECT_EQ(cache_.size_bytes(), 0);
  }
  int64_t refusals() const { return refusals_; }
  const SequenceCache& cache() const { return cache_; }

 private:
  int64_t below(int64_t end) {
    return static_cast<int64_t>(random_() % static_cast<unsigned>(end));
  }
  SequenceId any() {
    auto at = given_.begin();
    std::advance(at, below(std::ssize(given_)));
    return at->first;
  }
  void forget(SequenceId id) {
    cache_.remove(id);
    given_.erase(id);
  }
  void cut(SequenceId id) {
    Given& given = given_.at(id);
    const int64_t length = below(2) == 0
                               ? below(given.length + 1)
                               : given.length - below(std::min<int64_t>(given.length, 3) + 1);
    cache_.truncate(id, length);
    given.length = length;
    for (auto* kept : {&given.k, &given.v}) {
      for (std::vector<at::Tensor>& of_layer : *kept)
        if (!of_layer.empty()) of_layer = {at::cat(of_layer).narrow(0, 0, length).clone()};
    }
  }
  /// Some sequences at once, each by few tokens or by many.
  void grow() {
    std::vector<SequenceCache::Growth> batch;
    for (const auto& [id, given] : given_)
      if (below(2) == 0) batch.push_back({id, below(3) == 0 ? 1 + below(70) : 1 + below(4)});
    if (batch.empty()) return;
    const int64_t needed = cache_.pages_needed(batch), before = cache_.pool().num_held();
    const bool fits = cache_.pool().has(needed);
    const auto segments = cache_.begin_if_room(batch);
    ASSERT_EQ(segments.has_value(), fits);
    if (!segments) {
      ++refusals_;
      EXPECT_EQ(cache_.pool().num_held(), before);
      for (const auto& [id, given] : given_) EXPECT_EQ(cache_.length(id), given.length);
      EXPECT_THROW(cache_.begin(batch), InternalError);
      return forget(any());
    }
    EXPECT_EQ(cache_.pool().num_held(), before + needed);
    for (int64_t layer = 0; layer < 2; ++layer) attend(batch, static_cast<size_t>(layer));
    cache_.end();
    for (const auto& [id, num_new] : batch) {
      given_.at(id).length += num_new;
      EXPECT_EQ(cache_.length(id), given_.at(id).length);
    }
  }
  void attend(const std::vector<SequenceCache::Growth>& batch, size_t layer) {
    int64_t n = 0;
    for (const auto& [id, num_new] : batch) n += num_new;
    const auto random = [&](int64_t heads, int64_t dim) {
      return test::random_f64({n, heads, dim}, ++seed_).to(at::kFloat);
    };
    const at::Tensor q = random(4, 6), k = random(2, 6), v = random(2, 4);
    const ops::AttentionOptions options{0.4, below(3) == 0 ? 20 : 0, {}};
    const at::Tensor seen = cache_.attend(static_cast<int64_t>(layer), q, k, v, options);
    int64_t first = 0;
    for (const auto& [id, num_new] : batch) {
      Given& given = given_.at(id);
      given.k[layer].push_back(k.narrow(0, first, num_new));
      given.v[layer].push_back(v.narrow(0, first, num_new));
      expect_naive(seen.narrow(0, first, num_new), q.narrow(0, first, num_new), given, layer,
                   options);
      first += num_new;
    }
  }
  /// As many pages as sequences need at least if none shared, and no more than the limit.
  void check_counts() {
    int64_t alone = 0;
    for (const auto& [id, given] : given_)
      alone += (given.length + ops::kPageTokens - 1) / ops::kPageTokens;
    EXPECT_LE(cache_.pool().num_held(), alone);
    const int64_t limit = cache_.pool().max_pages();
    EXPECT_TRUE(limit == 0 || cache_.pool().num_held() <= limit);
  }

  SequenceCache cache_;
  std::map<SequenceId, Given> given_;
  std::mt19937 random_;
  uint64_t seed_ = 0;
  int64_t refusals_ = 0;
};

TEST(PagedSequences, SeeEverythingThatTheyWereGivenAndNothingElse) {
  for (const int64_t max_pages : {0, 5, 24}) {
    Changing changing(max_pages, 3 + static_cast<unsigned>(max_pages));
    for (int step = 0; step < 150 && !testing::Test::HasFatalFailure(); ++step) {
      SCOPED_TRACE(testing::Message() << "limit " << max_pages << ", step " << step);
      changing.change();
    }
    EXPECT_EQ(changing.refusals() > 0, max_pages > 0) << max_pages;
    changing.forget_all();
  }
}

/// Three that share the page that is begun: two copies, as the last to write has it alone.
TEST(PagedSequences, CountCopiesOfAPageThatSeveralWriteTo) {
  SequenceCache cache(kSmallShape, at::kFloat, at::kCPU, 3);
  const SequenceId first = cache.add();
  cache.begin({{first, 8}});
  cache.end();
  const SequenceId second = cache.fork(first), third = cache.fork(second);
  EXPECT_EQ(cache.pool().num_held(), 1);
  EXPECT_EQ(cache.pages_needed({{first, 1}, {second, 1}, {third, 1}}), 2);
  EXPECT_EQ(cache.pages_needed({{first, 1}, {second, 25}, {third, 1}}), 3);
  EXPECT_FALSE(cache.begin_if_room({{first, 1}, {second, 25}, {third, 1}}));
  EXPECT_EQ(cache.pool().num_held(), 1);
  EXPECT_TRUE(cache.begin_if_room({{first, 1}, {second, 1}, {third, 1}}));
  EXPECT_EQ(cache.pool().num_held(), 3);
}

TEST(PagedSequences, ShareNothingOfAPassThatWasNotEnded) {
  SequenceCache cache(kSmallShape, at::kFloat, at::kCPU, 0);
  const SequenceId first = cache.add();
  cache.begin({{first, 70}});
  const SequenceId second = cache.fork(first);
  const at::Tensor ones = at::ones({40, 2, 6}), q = at::zeros({40, 4, 6});
  const auto written = [&](SequenceId id, double value) {
    cache.begin({{id, 40}});
    const at::Tensor v = at::full({40, 2, 4}, value, at::kFloat);
    const at::Tensor seen = cache.attend(0, q, ones, v, {});
    cache.end();
    return seen;
  };
  written(first, 1);
  written(second, 2);
  cache.begin({{first, 1}});
  const at::Tensor seen =
      cache.attend(0, q.narrow(0, 0, 1), ones.narrow(0, 0, 1), at::ones({1, 2, 4}), {});
  EXPECT_TRUE(at::allclose(seen, at::ones({1, 4, 4}))) << seen;
}

}  // namespace page_pool_test
}  // namespace danlu::infer
