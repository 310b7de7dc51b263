// Rows that ranks send to one another, uneven numbers and none among them.
#include "parallel/exchange.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <random>

#include "parallel/comm/local.h"
#include "parallel/mesh.h"

namespace danlu::parallel {
namespace {

constexpr int64_t kRanks = 4, kWidth = 3;

/// How many rows rank `from` sends to rank `to`; the last rank sends none, and gets none of some.
std::vector<std::vector<int64_t>> random_counts(uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::vector<int64_t>> counts(kRanks, std::vector<int64_t>(kRanks, 0));
  for (int64_t from = 0; from + 1 < kRanks; ++from) {
    for (int64_t to = 0; to < kRanks; ++to)
      counts[static_cast<size_t>(from)][static_cast<size_t>(to)] =
          static_cast<int64_t>(random() % 4);
  }
  return counts;
}

/// A row that says where it comes from, where it goes, and its number among those.
void write_row(const at::Tensor& row, int64_t from, int64_t to, int64_t number, double factor) {
  row[0] = factor * static_cast<double>(from + 1);
  row[1] = factor * static_cast<double>(to + 1);
  row[2] = factor * static_cast<double>(number + 1);
}

TEST(ExchangeRows, EachRankGetsItsRowsInTheOrderOfRanksAndGradientsGoBack) {
  for (const uint64_t seed : {1, 2, 3}) {
    const auto counts = random_counts(seed);
    run_local_ranks(kRanks, [&](World& world) {
      const auto group = world.make_group_of_all();
      const auto own = static_cast<size_t>(world.rank());
      const std::vector<int64_t>& sends = counts[own];
      std::vector<int64_t> receives;
      for (const auto& of_rank : counts) receives.push_back(of_rank[own]);
      const auto table = [&](const std::vector<int64_t>& numbers, bool sent, double factor) {
        int64_t rows = 0, row = 0;
        for (const int64_t number : numbers) rows += number;
        const at::Tensor all = at::empty({rows, kWidth}, at::kDouble);
        for (int64_t rank = 0; rank < kRanks; ++rank) {
          for (int64_t i = 0; i < numbers[static_cast<size_t>(rank)]; ++i, ++row)
            write_row(all[row], sent ? world.rank() : rank, sent ? rank : world.rank(), i, factor);
        }
        return all;
      };
      const at::Tensor x = table(sends, true, 1).requires_grad_(true);
      const at::Tensor got = exchange_rows(x, sends, receives, *group);
      EXPECT_TRUE(at::equal(got.detach(), table(receives, false, 1)));
      // What comes back for a row is what its receiver has found for it.
      const at::Tensor grad = torch::autograd::grad({got}, {x}, {table(receives, false, 5)})[0];
      EXPECT_TRUE(at::equal(grad, table(sends, true, 5)));
    });
  }
}

}  // namespace
}  // namespace danlu::parallel
