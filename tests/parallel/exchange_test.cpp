// Rows that ranks send to one another, uneven numbers and none among them.
#include "parallel/exchange.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <random>

#include "parallel/comm/local.h"
#include "parallel/mesh.h"
#include "parallel/virtual_clock.h"

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

thread_local double spent_by_thread = 0;
double spent() { return spent_by_thread; }

/// x, and so many seconds of a rank's own computing, in the forward and again in the backward.
class Computing : public torch::autograd::Function<Computing> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x,
                            double seconds) {
    ctx->saved_data["seconds"] = seconds;
    spent_by_thread += seconds;
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& grads) {
    spent_by_thread += ctx->saved_data["seconds"].toDouble();
    return {grads[0], {}};
  }
};

TEST(AsyncExchange, GivesWhatExchangeRowsGives) {
  const auto counts = random_counts(4);
  run_local_ranks(kRanks, [&](World& world) {
    const auto group = world.make_group_of_all();
    const AsyncExchange exchange(world.make_group_of_all());
    const auto own = static_cast<size_t>(world.rank());
    const std::vector<int64_t>& sends = counts[own];
    std::vector<int64_t> receives;
    for (const auto& of_rank : counts) receives.push_back(of_rank[own]);
    int64_t rows = 0;
    for (const int64_t number : sends) rows += number;
    const at::Tensor x = at::randn({rows, kWidth}).requires_grad_(true);
    const at::Tensor expected = exchange_rows(x, sends, receives, *group);
    // Two are under way at once, and the later one is waited for first.
    const auto first = exchange.begin(x, sends, receives),
               second = exchange.begin(x, sends, receives);
    const at::Tensor later = exchange.end(second), got = exchange.end(first);
    EXPECT_TRUE(at::equal(got, expected));
    EXPECT_TRUE(at::equal(later, expected));
    const at::Tensor grad = at::randn(got.sizes());
    EXPECT_TRUE(at::equal(torch::autograd::grad({got}, {x}, {grad})[0],
                          torch::autograd::grad({expected}, {x}, {grad})[0]));
    const at::NoGradGuard no_grad;
    EXPECT_TRUE(at::equal(exchange.end(exchange.begin(x, sends, receives)), expected));
  });
}

// 200 bytes each way take 2.5 seconds, and the other rank has as many: what is computed between
// begin() and end() hides them, in the backward too.
TEST(AsyncExchange, ComputingBetweenItsHalvesHidesTheLink) {
  const VirtualTime links{.node = {.bytes_per_s = 100, .latency_s = 0.5},
                          .processor_seconds = spent};
  for (const double seconds : {0.0, 1.0, 10.0}) {
    run_local_ranks(
        2,
        [&](World& world) {
          const AsyncExchange exchange(world.make_group_of_all());
          const VirtualClock& clock = *VirtualClock::of_thread();
          const at::Tensor x = at::randn({50, 1}).requires_grad_(true);
          const std::vector<int64_t> to_other = {50 * world.rank(), 50 - 50 * world.rank()};
          const auto under_way = exchange.begin(x, to_other, to_other);
          const at::Tensor between = Computing::apply(x, seconds);
          const at::Tensor sum = exchange.end(under_way) + between;
          EXPECT_DOUBLE_EQ(clock.now(), std::max(2.5, seconds));
          EXPECT_DOUBLE_EQ(clock.exchanges().exposed, std::max(0.0, 2.5 - seconds));
          sum.sum().backward();
          EXPECT_DOUBLE_EQ(clock.now(), 2 * std::max(2.5, seconds));
          EXPECT_DOUBLE_EQ(clock.exchanges().modelled, 5);
          EXPECT_DOUBLE_EQ(clock.exchanges().exposed, 2 * std::max(0.0, 2.5 - seconds));
        },
        1, &links);
  }
}

}  // namespace
}  // namespace danlu::parallel
