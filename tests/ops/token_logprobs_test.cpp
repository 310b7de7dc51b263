#include "ops/token_logprobs.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/max.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <thread>

#include "base/error.h"
#include "finite_differences.h"
#include "thread_ranks.h"

namespace danlu::ops {
namespace {

using test::expect_gradients;
using test::random_f64;
using test::Threads;

at::Tensor integers(const std::vector<int64_t>& values) {
  return at::tensor(values, at::TensorOptions(at::kLong));
}

/// Through all logits.
at::Tensor plainly(const at::Tensor& logits_NV, const at::Tensor& rows_M, const at::Tensor& ids_M) {
  return at::log_softmax(logits_NV, 1)
      .index_select(0, rows_M)
      .gather(1, ids_M.unsqueeze(1))
      .squeeze(1);
}

// Rows without an id, several ids of a row, one id of several rows.
const std::vector<int64_t> kRows{0, 2, 2, 2, 3, 6}, kIds{3, 10, 0, 3, 3, 9};

TEST(TokenLogprobs, AreThoseOfAllLogitsWhateverTheChunk) {
  const at::Tensor hidden = random_f64({7, 5}, 1), weight = random_f64({11, 5}, 2),
                   low = random_f64({7, 2}, 3), b = random_f64({11, 2}, 4);
  for (const int64_t chunk : {0, 1, 2, 3}) {
    HeadOptions options;
    options.chunk_tokens = chunk;
    const at::Tensor rows = integers(kRows), ids = integers(kIds);
    const TokenLogprobs found = head_token_logprobs(hidden, weight, rows, ids, options, {low, b});
    const at::Tensor logits = at::mm(hidden, weight.t()) + at::mm(low, b.t());
    EXPECT_TRUE(at::allclose(found.logprobs_M, plainly(logits, rows, ids), 1e-12, 1e-12));
    EXPECT_TRUE(at::allclose(found.logits_M - found.norms_M, found.logprobs_M, 1e-12, 1e-12));
    const TokenLogprobs given = token_logprobs(logits, rows, ids, {.chunk_rows = chunk}, 11,
                                               [](const at::Tensor& rows_CV) { return rows_CV; });
    EXPECT_TRUE(at::allclose(found.logprobs_M, given.logprobs_M, 1e-12, 1e-12));
    for (size_t i = 0; i < kRows.size(); ++i) {
      const bool is_largest = logits[kRows[i]].argmax().item<int64_t>() == kIds[i];
      EXPECT_EQ(found.is_largest_M[static_cast<int64_t>(i)].item<bool>(), is_largest);
    }
  }
}

TEST(TokenLogprobs, HaveTheGradientsOfEveryFactor) {
  for (const int64_t chunk : {0, 2}) {
    HeadOptions options;
    options.chunk_tokens = chunk;
    expect_gradients(
        [&](const std::vector<at::Tensor>& in) {
          return head_token_logprobs(in[0], in[1], integers(kRows), integers(kIds), options,
                                     {in[2], in[3]})
              .logprobs_M;
        },
        {random_f64({7, 5}, 1), random_f64({11, 5}, 2), random_f64({7, 2}, 3),
         random_f64({11, 2}, 4)});
  }
}

TEST(TokenLogprobs, OfATemperatureAreThoseOfDividedLogits) {
  const at::Tensor hidden = random_f64({7, 5}, 1), weight = random_f64({11, 5}, 2),
                   bias = random_f64({11}, 5);
  const at::Tensor rows = integers(kRows), ids = integers(kIds);
  for (const double cap : {0.0, 2.0}) {
    HeadOptions options;
    options.softcap = cap;
    options.bias_V = bias;
    const LogprobOptions how{.temperature = 0.7, .entropy = true, .chunk_rows = 2};
    const at::Tensor logits = capped(at::mm(hidden, weight.t()) + bias, cap) / 0.7;
    const TokenLogprobs found = head_token_logprobs(hidden, weight, rows, ids, options, {}, how);
    EXPECT_TRUE(at::allclose(found.logprobs_M, plainly(logits, rows, ids), 1e-12, 1e-12));
    const at::Tensor all = at::log_softmax(logits, 1);
    const at::Tensor entropies = -(all.exp() * all).sum(1).index_select(0, rows);
    EXPECT_TRUE(at::allclose(found.entropies_M, entropies, 1e-12, 1e-12));
    const TokenLogprobs given =
        token_logprobs(logits * 0.7, rows, ids, how, 11, [](const at::Tensor& of) { return of; });
    EXPECT_TRUE(at::allclose(given.entropies_M, entropies, 1e-12, 1e-12));
    EXPECT_TRUE(at::allclose(given.logprobs_M, found.logprobs_M, 1e-12, 1e-12));
    expect_gradients(
        [&](const std::vector<at::Tensor>& in) {
          HeadOptions of = options;
          of.bias_V = in[2];
          return head_token_logprobs(in[0], in[1], rows, ids, of, {}, how).logprobs_M;
        },
        {hidden, weight, bias});
  }
}

TEST(TokenLogprobs, PutTheWeightsGradientWhereItIsSummed) {
  const at::Tensor hidden = random_f64({7, 5}, 1).to(at::kFloat).requires_grad_(true),
                   weight = random_f64({11, 5}, 2).to(at::kFloat).requires_grad_(true);
  auto main = std::make_shared<MainGrad>();
  main->sum = at::zeros({11, 5}, at::kFloat);
  HeadOptions options;
  const auto gradients = [&] {
    const at::Tensor sum =
        head_token_logprobs(hidden, weight, integers(kRows), integers(kIds), options)
            .logprobs_M.sum();
    return torch::autograd::grad({sum}, {hidden, weight}, {}, {}, false, /*allow_unused=*/true);
  };
  const auto plain = gradients();
  options.main_grad = main;
  EXPECT_FALSE(gradients()[1].defined());
  EXPECT_FALSE(gradients()[1].defined());
  EXPECT_TRUE(at::allclose(main->sum, 2 * plain[1], 1e-5, 1e-6));
}

TEST(TokenLogprobs, OfNoTokenHangOnTheGraph) {
  for (const size_t trained : {0, 1, 2, 3}) {
    std::vector<at::Tensor> factors = {random_f64({3, 5}, 1), random_f64({11, 5}, 2),
                                       random_f64({3, 2}, 3), random_f64({11, 2}, 4)};
    factors[trained].requires_grad_(true);
    const TokenLogprobs found = head_token_logprobs(factors[0], factors[1], integers({}),
                                                    integers({}), {}, {factors[2], factors[3]});
    EXPECT_EQ(found.logprobs_M.numel(), 0);
    EXPECT_TRUE(found.logprobs_M.requires_grad()) << trained;
  }
}

// Logits of bf16 are often alike: which of them is the greedy one may not depend on the ranks.
TEST(TokenLogprobs, FirstOfEqualLogitsIsTheLargestWhoeverHasIt) {
  const int64_t vocab = 11;
  const at::Tensor hidden = random_f64({6, 2}, 1).round(),
                   weight = random_f64({vocab, 2}, 2).round();
  const at::Tensor best_N = std::get<1>(at::max(at::mm(hidden, weight.t()), 1));
  std::vector<int64_t> every_row, every_id;
  for (int64_t i = 0; i < 6 * vocab; ++i) {
    every_row.push_back(i / vocab);
    every_id.push_back(i % vocab);
  }
  const at::Tensor rows = integers(every_row), ids = integers(every_id);
  const at::Tensor wanted = best_N.index_select(0, rows) == ids;
  EXPECT_TRUE(at::equal(head_token_logprobs(hidden, weight, rows, ids).is_largest_M, wanted));
  // Three ranks of 4, 4 and 3 columns, and one without any.
  Threads threads(4);
  std::vector<at::Tensor> found(4);
  std::vector<std::thread> ranks;
  for (size_t rank = 0; rank < found.size(); ++rank) {
    ranks.emplace_back([&, rank] {
      const int64_t first = std::min(vocab, 4 * static_cast<int64_t>(rank)),
                    count = std::min<int64_t>(4, vocab - first);
      HeadOptions options;
      options.share = threads.share(rank, first, vocab, 4);
      found[rank] = head_token_logprobs(hidden, weight.narrow(0, first, count), rows, ids, options)
                        .is_largest_M;
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const at::Tensor& one : found) EXPECT_TRUE(at::equal(one, wanted));
}

TEST(TokenLogprobs, RowsAndIdsMustBeThere) {
  const at::Tensor hidden = random_f64({3, 5}, 1), weight = random_f64({11, 5}, 2);
  const auto of = [&](std::vector<int64_t> rows, std::vector<int64_t> ids) {
    return head_token_logprobs(hidden, weight, integers(rows), integers(ids));
  };
  EXPECT_THROW(of({3}, {0}), ModelError);
  EXPECT_THROW(of({1, 0}, {0, 0}), ModelError);
  EXPECT_THROW(of({1}, {11}), ModelError);
  EXPECT_THROW(of({1}, {-1}), ModelError);
  EXPECT_THROW(of({1, 2}, {1}), ModelError);
}

}  // namespace
}  // namespace danlu::ops
