// Divergences of two heads against TRL's formula in PyTorch (divergence_golden.json, written by
// make_divergence_golden.py), against differences, and through parts of a vocabulary.
#include "ops/head_divergence.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "finite_differences.h"
#include "ops/token_logprobs.h"

namespace danlu::ops {
namespace divergence_test {

using test::expect_gradients;
using test::random_f64;

at::Tensor numbers(const Json& list, at::IntArrayRef sizes) {
  return at::tensor(list.get<std::vector<double>>(), at::TensorOptions(at::kDouble)).view(sizes);
}

at::Tensor whole_numbers(const std::vector<int64_t>& values) {
  return at::tensor(values, at::TensorOptions(at::kLong));
}

/// The columns of logits [M, V] that a head asks for.
OtherLogits logits_from(const at::Tensor& logits_MV) {
  return [logits_MV](int64_t begin, int64_t count, const HeadColumns& columns) {
    return logits_MV.narrow(0, begin, count).narrow(1, columns.first, columns.count);
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
                          {.mixture = wanted["beta"],
                           .temperature = wanted["temperature"],
                           .top = wanted["top"],
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
  const at::Tensor found =
      head_divergence(hidden, weight, rows, ids, logits_from(padded)).divergences_M;
  const at::Tensor narrow =
      head_divergence(hidden, weight.narrow(0, 0, 8), rows, ids, logits_from(other)).divergences_M;
  EXPECT_TRUE(at::allclose(found, narrow, 1e-12, 1e-12));
  const auto got = torch::autograd::grad({found.sum()}, {hidden, weight}),
             want = torch::autograd::grad({narrow.sum()}, {hidden, weight});
  EXPECT_TRUE(at::allclose(got[0], want[0], 1e-12, 1e-12));
  EXPECT_TRUE(at::allclose(got[1], want[1], 1e-12, 1e-12));
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
