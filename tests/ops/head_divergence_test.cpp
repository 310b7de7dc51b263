// Divergences of two heads against TRL's formula in PyTorch (divergence_golden.json, written by
// make_divergence_golden.py), against differences, and through parts of a vocabulary.
#include "ops/head_divergence.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <limits>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "finite_differences.h"
#include "ops/token_logprobs.h"
#include "thread_ranks.h"

namespace danlu::ops {
namespace divergence_test {

using test::expect_gradients;
using test::random_f64;
using test::Threads;

at::Tensor numbers(const Json& list, at::IntArrayRef sizes) {
  return at::tensor(list.get<std::vector<double>>(), at::TensorOptions(at::kDouble)).view(sizes);
}

at::Tensor whole_numbers(const std::vector<int64_t>& values) {
  return at::tensor(values, at::TensorOptions(at::kLong));
}

/// The columns of logits [M, V] that a head asks for and that are there.
OtherLogits logits_from(const at::Tensor& logits_MV) {
  return [logits_MV](int64_t begin, int64_t count, const HeadColumns& columns) {
    const int64_t first = std::min(columns.first, logits_MV.size(1));
    return logits_MV.narrow(0, begin, count)
        .narrow(1, first, std::min(columns.count, logits_MV.size(1) - first));
  };
}

TEST(HeadDivergence, IsTrlsWithItsGradients) {
  const Json golden =
      read_json_file(std::string(DANLU_SOURCE_DIR) + "/tests/ops/divergence_golden.json");
  const int64_t tokens = golden["tokens"], width = golden["width"], vocab = golden["vocab"];
  const at::Tensor by = numbers(golden["by"], {tokens});
  const at::Tensor rows = whole_numbers({0, 1, 2, 3}), ids = whole_numbers({0, 8, 2, 2});
  for (const Json& wanted : golden["cases"]) {
    SCOPED_TRACE(wanted["beta"].dump() + " " + wanted["temperature"].dump() + " " +
                 wanted["top"].dump());
    for (const int64_t chunk : {0, 1, 3}) {
      const at::Tensor hidden = numbers(golden["hidden"], {tokens, width}).requires_grad_(true),
                       weight = numbers(golden["weight"], {vocab, width}).requires_grad_(true);
      const at::Tensor found =
          head_divergence(hidden, weight, rows, ids,
                          logits_from(numbers(golden["teacher"], {tokens, vocab})), {}, {},
                          {.beta = wanted["beta"],
                           .temperature = wanted["temperature"],
                           .topk = wanted["top"],
                           .chunk_rows = chunk})
              .divergences_M;
      EXPECT_TRUE(at::allclose(found, numbers(wanted["divergences"], {tokens}), 1e-9, 1e-12));
      const auto grads = torch::autograd::grad({(found * by).sum()}, {hidden, weight});
      EXPECT_TRUE(
          at::allclose(grads[0], numbers(wanted["d_hidden"], {tokens, width}), 1e-9, 1e-10));
      EXPECT_TRUE(at::allclose(grads[1], numbers(wanted["d_weight"], {vocab, width}), 1e-9, 1e-10));
    }
  }
}

// Every factor, with a cap; of both results.
TEST(HeadDivergence, HasTheGradientsOfEveryFactor) {
  const at::Tensor other = 2 * random_f64({3, 11}, 9);
  const at::Tensor rows = whole_numbers({0, 2, 5}), ids = whole_numbers({3, 10, 0});
  for (const double beta : {0.0, 0.4, 1.0}) {
    for (const double cap : {0.0, 2.0}) {
      expect_gradients(
          [&](const std::vector<at::Tensor>& in) {
            HeadOptions options;
            options.softcap = cap;
            options.bias_V = in[4];
            const HeadDivergence found =
                head_divergence(in[0], in[1], rows, ids, logits_from(other), options,
                                {in[2], in[3]}, {beta, 0.8, 0, 2});
            return at::cat({found.divergences_M, found.logprobs_M});
          },
          {random_f64({7, 5}, 1), random_f64({11, 5}, 2), random_f64({7, 2}, 3),
           random_f64({11, 2}, 4), random_f64({11}, 5)});
    }
  }
}

TEST(HeadDivergence, LogprobsAreThoseOfTheWholeVocabulary) {
  const at::Tensor hidden = random_f64({7, 5}, 1), weight = random_f64({11, 5}, 2);
  const at::Tensor rows = whole_numbers({0, 2, 5}), ids = whole_numbers({3, 10, 0});
  const at::Tensor found =
      head_divergence(hidden, weight, rows, ids, logits_from(random_f64({3, 11}, 9)), {}, {},
                      {0.5, 0.3, 4, 0})
          .logprobs_M;
  EXPECT_TRUE(
      at::allclose(found, head_token_logprobs(hidden, weight, rows, ids).logprobs_M, 1e-12, 1e-12));
}

// Tokens that one of the two does not have are no part of either distribution.
TEST(HeadDivergence, IsOverTokensThatBothKnow) {
  const at::Tensor hidden = random_f64({3, 5}, 1).requires_grad_(true),
                   weight = random_f64({11, 5}, 2).requires_grad_(true),
                   other = random_f64({3, 8}, 3);
  const at::Tensor rows = whole_numbers({0, 1, 2}), ids = whole_numbers({3, 7, 0});
  const at::Tensor padded =
      at::cat({other, at::full({3, 3}, -std::numeric_limits<double>::infinity(), at::kDouble)}, 1);
  const at::Tensor narrow =
      head_divergence(hidden, weight.narrow(0, 0, 8), rows, ids, logits_from(other)).divergences_M;
  const auto want = torch::autograd::grad({narrow.sum()}, {hidden, weight});
  for (const at::Tensor& teacher : {padded, other}) {
    const at::Tensor found =
        head_divergence(hidden, weight, rows, ids, logits_from(teacher)).divergences_M;
    EXPECT_TRUE(at::allclose(found, narrow, 1e-12, 1e-12));
    const auto got = torch::autograd::grad({found.sum()}, {hidden, weight});
    EXPECT_TRUE(at::allclose(got[0], want[0], 1e-12, 1e-12));
    EXPECT_TRUE(at::allclose(got[1], want[1], 1e-12, 1e-12));
  }
}

TEST(HeadDivergence, HasNoLogprobsWhereNobodyAsks) {
  const at::Tensor hidden = random_f64({3, 5}, 1).requires_grad_(true),
                   weight = random_f64({11, 5}, 2), other = random_f64({3, 11}, 3);
  for (const std::vector<int64_t>& some : {std::vector<int64_t>{0, 2}, std::vector<int64_t>{}}) {
    const at::Tensor rows = whole_numbers(some);
    const auto of = [&](bool with_logprobs) {
      return head_divergence(hidden, weight, rows, rows, logits_from(other), {}, {},
                             {.with_logprobs = with_logprobs});
    };
    const HeadDivergence with = of(true), without = of(false);
    EXPECT_TRUE(with.logprobs_M.defined());
    EXPECT_FALSE(without.logprobs_M.defined());
    EXPECT_TRUE(at::equal(with.divergences_M, without.divergences_M));
    EXPECT_TRUE(at::equal(torch::autograd::grad({with.divergences_M.sum()}, {hidden})[0],
                          torch::autograd::grad({without.divergences_M.sum()}, {hidden})[0]));
  }
}

/// -inf where a loop over ids finds that a token is not among the K likeliest.
at::Tensor only_likeliest(const at::Tensor& logits_MV, int64_t k) {
  at::Tensor only = at::full_like(logits_MV, -std::numeric_limits<double>::infinity());
  for (int64_t row = 0; row < logits_MV.size(0); ++row) {
    for (int64_t taken = 0; taken < k; ++taken) {
      int64_t best = -1;
      for (int64_t id = 0; id < logits_MV.size(1); ++id) {
        const auto logit = [&](int64_t column) { return logits_MV[row][column].item<double>(); };
        const bool is_free = !std::isfinite(only[row][id].item<double>());
        if (is_free && (best < 0 || logit(id) > logit(best))) best = id;
      }
      only[row][best] = logits_MV[row][best];
    }
  }
  return only;
}

// Logits of bf16 are often alike. Whoever has the columns, K tokens are compared.
TEST(HeadDivergence, TakesAsManyTokensWhereSomeAreAsLikely) {
  const int64_t vocab = 11, k = 4;
  const at::Tensor hidden = random_f64({5, 6}, 1), weight = random_f64({vocab, 6}, 2),
                   other = (random_f64({5, vocab}, 3) * 1.5).round();
  const at::Tensor rows = whole_numbers({0, 1, 2, 3, 4}), ids = whole_numbers({3, 7, 0, 1, 2});
  const at::Tensor wanted =
      head_divergence(hidden, weight, rows, ids, logits_from(only_likeliest(other, k)))
          .divergences_M;
  const DivergenceOptions how{.topk = k};
  EXPECT_TRUE(at::allclose(
      head_divergence(hidden, weight, rows, ids, logits_from(other), {}, {}, how).divergences_M,
      wanted, 1e-12, 1e-12));
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
      found[rank] = head_divergence(hidden, weight.narrow(0, first, count), rows, ids,
                                    logits_from(other), options, {}, how)
                        .divergences_M;
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const at::Tensor& of_rank : found) EXPECT_TRUE(at::allclose(of_rank, wanted, 1e-12, 1e-12));
}

TEST(HeadDivergence, PutsTheWeightsGradientWhereItIsSummed) {
  const at::Tensor hidden = random_f64({3, 5}, 1).to(at::kFloat).requires_grad_(true),
                   weight = random_f64({11, 5}, 2).to(at::kFloat).requires_grad_(true),
                   other = random_f64({3, 11}, 3).to(at::kFloat);
  const at::Tensor rows = whole_numbers({0, 1, 2}), ids = whole_numbers({3, 7, 0});
  auto main = std::make_shared<MainGrad>();
  main->sum = at::zeros({11, 5}, at::kFloat);
  HeadOptions options;
  const auto gradients = [&] {
    const at::Tensor sum =
        head_divergence(hidden, weight, rows, ids, logits_from(other), options).divergences_M.sum();
    return torch::autograd::grad({sum}, {hidden, weight}, {}, {}, false, /*allow_unused=*/true);
  };
  const auto plain = gradients();
  options.main_grad = main;
  EXPECT_FALSE(gradients()[1].defined());
  EXPECT_FALSE(gradients()[1].defined());
  EXPECT_TRUE(at::allclose(main->sum, 2 * plain[1], 1e-5, 1e-6));
}

TEST(HeadDivergence, OfNoTokenHangsOnTheGraph) {
  for (const size_t trained : {0, 1, 2, 3}) {
    std::vector<at::Tensor> factors = {random_f64({3, 5}, 1), random_f64({11, 5}, 2),
                                       random_f64({3, 2}, 3), random_f64({11, 2}, 4)};
    factors[trained].requires_grad_(true);
    const HeadDivergence found =
        head_divergence(factors[0], factors[1], whole_numbers({}), whole_numbers({}),
                        logits_from(random_f64({0, 11}, 5)), {}, {factors[2], factors[3]});
    EXPECT_EQ(found.divergences_M.numel(), 0);
    EXPECT_TRUE(found.divergences_M.requires_grad()) << trained;
  }
}

TEST(HeadDivergence, RowsAndIdsMustBeThere) {
  const at::Tensor hidden = random_f64({3, 5}, 1), weight = random_f64({11, 5}, 2);
  const auto of = [&](std::vector<int64_t> rows, std::vector<int64_t> ids) {
    return head_divergence(hidden, weight, whole_numbers(rows), whole_numbers(ids),
                           logits_from(random_f64({3, 11}, 3)));
  };
  EXPECT_THROW(of({3}, {0}), ModelError);
  EXPECT_THROW(of({1, 1}, {0, 0}), ModelError);
  EXPECT_THROW(of({1}, {11}), ModelError);
  EXPECT_THROW(of({1}, {-1}), ModelError);
  EXPECT_THROW(of({1, 2}, {1}), ModelError);
}

}  // namespace divergence_test
}  // namespace danlu::ops
