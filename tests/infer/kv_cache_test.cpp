// Pages of the cache: shared after a fork until one of the sequences writes.
#include "infer/kv_cache.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "support/tiny_model.h"

namespace danlu::infer {
namespace kv_cache_test {

class Cache : public testing::Test {
 protected:
  Cache() {
    const Json json = test::tiny_config("llama");
    config_ = arch::family_of(json).parse(json);
    cache_ = std::make_unique<SequenceCache>(config_, at::kFloat, at::kCPU);
    page_bytes_ =
        config_.num_layers * 2 * config_.num_kv_heads * ops::kPageTokens * config_.head_dim * 4;
  }

  /// Adds so many tokens whose keys and values are all `value`. With one key of another value
  /// attention would give another mean.
  at::Tensor grow(SequenceId id, int64_t count, double value) {
    cache_->begin({{id, count}});
    at::Tensor seen;
    for (int64_t layer = 0; layer < config_.num_layers; ++layer) seen = attend(layer, count, value);
    cache_->end();
    return seen;
  }
  /// Mean of the values of all tokens: queries are 0, so every key has the same weight.
  double mean(SequenceId id) {
    cache_->begin({{id, 1}});
    const double mean = attend(0, 1, 0).select(0, 0).select(0, 0).select(0, 0).item<double>();
    const auto length = static_cast<double>(cache_->length(id));
    // begin() without end(): the token that asked is not there.
    return mean * (length + 1) / length;
  }
  at::Tensor attend(int64_t layer, int64_t count, double value) {
    const at::Tensor k = at::full({count, config_.num_kv_heads, config_.head_dim}, value);
    const at::Tensor q = at::full({count, config_.num_heads, config_.head_dim}, 0.0);
    return cache_->attend(layer, q.to(at::kFloat), k.to(at::kFloat), k.to(at::kFloat), {});
  }

  arch::ModelConfig config_;
  std::unique_ptr<SequenceCache> cache_;
  int64_t page_bytes_ = 0;
};

TEST_F(Cache, PagesAreSharedUntilOneWrites) {
  const SequenceId first = cache_->add();
  grow(first, ops::kPageTokens + 8, 1.0);
  EXPECT_EQ(cache_->size_bytes(), 2 * page_bytes_);
  const SequenceId second = cache_->fork(first), third = cache_->fork(first);
  EXPECT_EQ(cache_->size_bytes(), 2 * page_bytes_);
  grow(second, 40, 4.0);  // a copy of the page that is begun, and one more
  EXPECT_EQ(cache_->size_bytes(), 4 * page_bytes_);
  EXPECT_NEAR(mean(second), 2.5, 1e-5);
  EXPECT_NEAR(mean(first), 1.0, 1e-5);
  EXPECT_NEAR(mean(third), 1.0, 1e-5);
  EXPECT_EQ(cache_->length(third), ops::kPageTokens + 8);
  cache_->remove(second);
  cache_->remove(first);
  EXPECT_NEAR(mean(third), 1.0, 1e-5);
}

TEST_F(Cache, WhatIsForgottenDoesNotChangeAFork) {
  const SequenceId first = cache_->add();
  grow(first, 3 * ops::kPageTokens, 1.0);
  const SequenceId second = cache_->fork(first);
  cache_->truncate(first, ops::kPageTokens + 16);
  grow(first, 48, 5.0);
  EXPECT_NEAR(mean(first), 3.0, 1e-5);
  EXPECT_NEAR(mean(second), 1.0, 1e-5);
  cache_->truncate(first, 0);
  EXPECT_EQ(cache_->length(first), 0);
  grow(first, 2, 7.0);
  EXPECT_NEAR(mean(first), 7.0, 1e-5);
}

}  // namespace kv_cache_test
}  // namespace danlu::infer
