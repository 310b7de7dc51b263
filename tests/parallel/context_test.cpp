// Attention of tokens that several ranks hold, against one rank that holds all of them.
#include "parallel/context.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linspace.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <mutex>
#include <random>

#include "../ops/finite_differences.h"
#include "base/error.h"
#include "parallel/comm/local.h"
#include "parallel/mesh.h"

namespace danlu::parallel {
namespace {

using settings::ContextShape;

at::Tensor random(at::IntArrayRef shape, uint64_t seed, at::ScalarType dtype) {
  return test::random_f64(shape, seed).to(dtype);
}

at::Tensor rows_of(const at::Tensor& x, const std::vector<RowRange>& rows) {
  std::vector<at::Tensor> parts = {x.narrow(0, 0, 0)};
  for (const RowRange& range : rows) parts.push_back(x.narrow(0, range.begin, range.size()));
  return at::cat(parts, 0);
}

/// Result and gradients of q, k, v.
struct Outcome {
  at::Tensor out, q, k, v;
};

Outcome run(std::vector<at::Tensor> qkv, const at::Tensor& out_grad,
            const std::function<at::Tensor(const std::vector<at::Tensor>&)>& attention) {
  for (at::Tensor& x : qkv) x = x.detach().clone().requires_grad_(true);
  const at::Tensor out = attention(qkv);
  const auto grads = torch::autograd::grad({out}, qkv, {out_grad});
  return {out.detach(), grads[0], grads[1], grads[2]};
}

struct Case {
  ContextShape shape;
  std::vector<int64_t> starts;
  int64_t heads, kv_heads;
  ops::AttentionOptions options;
  std::vector<bool> causal = {};
  int64_t value_dim = 8;
};

double far(const at::Tensor& a, const at::Tensor& b) {
  if (a.numel() == 0) return 0;
  return (a - b).abs().max().item<double>() / std::max(1.0, b.abs().max().item<double>());
}

void expect_one_ranks_numbers(const Case& c, at::ScalarType dtype, double tolerance) {
  constexpr int64_t kDim = 8;
  const int64_t n = c.starts.back();
  const std::vector<at::Tensor> qkv = {random({n, c.heads, kDim}, 1, dtype),
                                       random({n, c.kv_heads, kDim}, 2, dtype),
                                       random({n, c.kv_heads, c.value_dim}, 3, dtype)};
  const at::Tensor out_grad = random({n, c.heads, c.value_dim}, 4, dtype);
  const ops::Segments segments{c.starts, c.starts, c.causal};
  const Outcome expected = run(qkv, out_grad, [&](const auto& x) {
    return ops::attention(x[0], x[1], x[2], segments, c.options);
  });
  // Tensor neighbours compute the same beside each other.
  const MeshShape shape{.tensor = 2, .context = c.shape};
  run_local_ranks(shape.size(), [&](World& world) {
    const Mesh mesh(world, shape);
    const auto rows = settings::context_rows(c.shape, mesh.context().rank(), n);
    std::vector<at::Tensor> own;
    for (const at::Tensor& x : qkv) own.push_back(rows_of(x, rows));
    const Outcome got = run(own, rows_of(out_grad, rows), [&](const auto& x) {
      return mesh.context().attention(x[0], x[1], x[2], segments, c.options);
    });
    EXPECT_LE(far(got.out, rows_of(expected.out, rows)), tolerance);
    EXPECT_LE(far(got.q, rows_of(expected.q, rows)), tolerance);
    EXPECT_LE(far(got.k, rows_of(expected.k, rows)), tolerance);
    EXPECT_LE(far(got.v, rows_of(expected.v, rows)), tolerance);
  });
}

std::vector<int64_t> random_starts(std::mt19937& random, int64_t largest) {
  std::vector<int64_t> starts = {0};
  const auto segments = std::uniform_int_distribution<int64_t>(1, 5)(random);
  for (int64_t s = 0; s < segments; ++s)
    starts.push_back(starts.back() + std::uniform_int_distribution<int64_t>(1, largest)(random));
  return starts;
}

class ContextOf : public testing::TestWithParam<ContextShape> {};

TEST_P(ContextOf, GivesTheAttentionOfOneRank) {
  std::mt19937 random(7);
  const ContextShape shape = GetParam();
  for (int round = 0; round < 12; ++round) {
    Case c{shape, random_starts(random, round < 3 ? 4 : 60), 4 * shape.ulysses, 1, {}};
    // As many key/value heads as ranks that exchange them, more, or one that all take.
    c.kv_heads = round % 3 == 0 ? shape.ulysses : round % 3 == 1 ? 2 * shape.ulysses : 1;
    c.options.scale = 0.4;
    if (round % 4 >= 2) c.options.window = 1 + static_cast<int64_t>(random() % 40);
    if (round % 5 >= 3) c.value_dim = round % 5 == 3 ? 5 : 12;
    if (round % 4 == 0)
      for (size_t s = 1; s < c.starts.size(); ++s) c.causal.push_back(random() % 2 == 0);
    if (round % 2 == 1) c.options.alibi_slopes_Q = at::linspace(0.02, 0.5, c.heads, at::kFloat);
    SCOPED_TRACE(testing::Message() << "round " << round << ", tokens " << c.starts.back());
    expect_one_ranks_numbers(c, at::kDouble, 1e-12);
    expect_one_ranks_numbers(c, at::kFloat, 5e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(All, ContextOf,
                         testing::Values(ContextShape{2, 1, 1}, ContextShape{4, 1, 1},
                                         ContextShape{1, 2, 2}, ContextShape{1, 4, 4},
                                         ContextShape{1, 4, 2}, ContextShape{2, 2, 2},
                                         ContextShape{1, 3, 3}),
                         [](const auto& info) {
                           return "ulysses" + std::to_string(info.param.ulysses) + "_ring" +
                                  std::to_string(info.param.ring) + "_window" +
                                  std::to_string(info.param.window);
                         });

TEST(Context, OfWindowsAndGroupsTogether) {
  std::mt19937 random(3);
  for (const ContextShape shape : {ContextShape{2, 4, 2}, ContextShape{1, 6, 2}}) {
    ops::AttentionOptions options;
    options.scale = 0.4;
    options.window = 50;
    const Case c{shape, random_starts(random, 90), 4, 2, options};
    expect_one_ranks_numbers(c, at::kDouble, 1e-12);
  }
}

// A ring: keys and values of all others come by in both passes, their gradients go all the way
// round. Heads: all but a rank's own of q, k, v and the result, and back.
TEST(Context, SendsTheTextbooksBytes) {
  constexpr int64_t kTokens = 64, kHeads = 4, kKeyDim = 8;
  const ops::Segments segments{{0, kTokens}, {0, kTokens}};
  const auto sent = [&](const ContextShape& shape, int64_t value_dim) {
    int64_t bytes = 0;
    std::mutex mutex;
    run_local_ranks(shape.size(), [&](World& world) {
      const Mesh mesh(world, {.context = shape});
      const int64_t n = settings::count_context_rows(shape, mesh.context().rank(), kTokens);
      const at::Tensor x = random({n, kHeads, kKeyDim}, 1, at::kFloat);
      const at::Tensor v = random({n, kHeads, value_dim}, 1, at::kFloat);
      run({x, x, v}, v, [&](const auto& qkv) {
        return mesh.context().attention(qkv[0], qkv[1], qkv[2], segments, {});
      });
      const std::lock_guard lock(mutex);
      bytes += mesh.context().traffic().bytes;
    });
    return bytes;
  };
  for (const int64_t value_dim : {8, 5, 12}) {
    constexpr int64_t kOfKeys = kTokens * kHeads * kKeyDim * 4;  // and of queries
    const int64_t of_values = kTokens * kHeads * value_dim * 4;  // and of results
    for (const int64_t ranks : {2, 4}) {
      EXPECT_EQ(sent({1, ranks, ranks}, value_dim),
                (kOfKeys + of_values) * (2 * (ranks - 1) + ranks))
          << ranks;
      EXPECT_EQ(sent({ranks, 1, 1}, value_dim), 2 * 2 * (kOfKeys + of_values) * (ranks - 1) / ranks)
          << ranks;
    }
    EXPECT_EQ(sent({1, 4, 2}, value_dim), sent({1, 4, 4}, value_dim));
  }
}

/// Before anything is sent: some ranks may meet nothing of the segment that cannot be.
TEST(Context, RefusesAWindowWhereLaterKeysAreSeenOnEveryRank) {
  run_local_ranks(2, [&](World& world) {
    const Mesh mesh(world, {.context = {1, 2, 2}});
    const at::Tensor x = random({4, 2, 8}, 1, at::kFloat);
    const ops::Segments segments{{0, 1, 8}, {0, 1, 8}, {false, true}};
    EXPECT_THROW(mesh.context().attention(x, x, x, segments, {1.0, 3, {}}), ModelError);
  });
}

TEST(Context, RefusesHeadsThatCannotBeShared) {
  run_local_ranks(2, [&](World& world) {
    const Mesh mesh(world, {.context = {2, 1, 1}});
    const at::Tensor q = random({4, 3, 8}, 1, at::kFloat);
    try {
      mesh.context().attention(q, q, q, {{0, 8}, {0, 8}}, {});
      ADD_FAILURE() << "3 heads were shared by 2";
    } catch (const ModelError& error) {
      EXPECT_THAT(std::string(error.what()), testing::HasSubstr("3 query heads"));
    }
  });
}

}  // namespace
}  // namespace danlu::parallel
