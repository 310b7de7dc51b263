// Units and shares: what ranks keep of parameters, and when all of them are there.
#include "parallel/store.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <random>
#include <stdexcept>
#include <thread>

#include "base/error.h"
#include "parallel/comm/local.h"
#include "support/comes_true.h"

namespace danlu::parallel {
namespace store_test {

using testing::ElementsAre;

TEST(FlatLayout, TensorsBeginAtPagesAndSharesAreEqual) {
  const FlatLayout layout({5, 0, 256, 700}, 3);
  EXPECT_EQ(layout.range(0), (Range{0, 5}));
  EXPECT_EQ(layout.range(1), (Range{256, 256}));
  EXPECT_EQ(layout.range(2), (Range{256, 512}));
  EXPECT_EQ(layout.range(3), (Range{512, 1212}));
  EXPECT_EQ(layout.total(), 1536);
  EXPECT_EQ(layout.share(2), (Range{1024, 1536}));
}

TEST(PiecesOf, RangesOfElementsAreRectanglesThatCoverTheTensorOnce) {
  std::mt19937_64 random(7);
  const auto below = [&](int64_t most) { return static_cast<int64_t>(random() % most); };
  for (int trial = 0; trial < 200; ++trial) {
    const int64_t rows = 1 + below(9), cols = 1 + below(7);
    Parameter parameter = whole_parameter("w", at::zeros({rows, cols}));
    // Rows in an order of their own, as a fused matrix has them.
    const int64_t cut = below(rows + 1);
    parameter.rects = {{{cut, rows - cut, 0, cols}, 1}, {{0, cut, 0, cols}, 2}};
    const int64_t middle = below(rows * cols + 1);
    at::Tensor seen = at::zeros({rows, cols});
    int64_t count = 0;
    for (const Range& held : {Range{0, middle}, Range{middle, rows * cols}}) {
      for (const auto& [rect, holders] : held_rects(parameter, held)) {
        EXPECT_EQ(holders, rect.row < cut ? 2 : 1);
        seen.narrow(0, rect.row, rect.rows).narrow(1, rect.col, rect.cols).add_(1);
        count += rect.rows * rect.cols;
      }
    }
    EXPECT_EQ(count, rows * cols);
    EXPECT_TRUE(seen.eq(1).all().item<bool>());
  }
}

/// A network of an embedding, two layers and a head that is tied to the embedding.
struct Net {
  std::vector<std::unique_ptr<Parameter>> owned;
  std::vector<Parameter*> places;
  Net() {
    const auto add = [&](const char* name, arch::Role role, int64_t layer, int64_t size) {
      const at::Tensor values = at::arange(size, at::kFloat) + 1000 * (layer + 2);
      owned.push_back(std::make_unique<Parameter>(whole_parameter(name, values)));
      owned.back()->spec.role = role;
      owned.back()->spec.layer = layer;
      owned.back()->place = role == arch::Role::kEmbedding ? 0 : layer < 0 ? 3 : layer + 1;
      places.push_back(owned.back().get());
    };
    add("embedding", arch::Role::kEmbedding, -1, 700);
    add("a.0", arch::Role::kQ, 0, 300);
    add("b.0", arch::Role::kO, 0, 20);
    add("a.1", arch::Role::kQ, 1, 300);
    add("norm", arch::Role::kFinalNorm, -1, 8);
    add("head", arch::Role::kHead, -1, 700);
    owned.back()->spec.tied_to = "embedding";
  }
};

void on_ranks(int64_t ranks, const std::function<void(const Mesh&)>& body) {
  run_local_ranks(ranks, [&](World& world) {
    const Mesh mesh(world, {.data = ranks});
    body(mesh);
  });
}

TEST(ParameterStore, ParametersAreThereWhereAPassIs) {
  on_ranks(3, [&](const Mesh& mesh) {
    Net net, original;
    ParameterStore store(mesh, {.sharding = Sharding::kParameters}, {{{0, 3}}, 3});
    store.lay_out(net.places, /*keeps_values=*/true);
    const auto is_there = [&](size_t index) {
      return net.places[index]->tensor.storage().nbytes() > 0;
    };
    const auto is_right = [&](size_t index) {
      const size_t of = index == 5 ? 0 : index;
      return is_there(index) &&
             at::equal(net.places[index]->tensor.detach(), original.places[of]->tensor);
    };
    for (size_t i = 0; i < net.places.size(); ++i) EXPECT_FALSE(is_there(i)) << i;
    store.before_forward(0);
    EXPECT_TRUE(is_right(0));
    store.after_forward(0, true);
    EXPECT_FALSE(is_there(0));
    store.before_forward(1);
    EXPECT_TRUE(is_right(1) && is_right(2));
    store.after_forward(1, true);
    store.before_forward(2);
    EXPECT_TRUE(is_right(3));
    store.after_forward(2, true);
    store.before_forward(3);
    EXPECT_TRUE(is_right(4) && is_right(5)) << "the tied end comes with the head";
    store.after_forward(3, true);
    EXPECT_TRUE(is_right(5)) << "the backward begins here";
    store.begin_backward(3);
    store.reach_backward(2);
    EXPECT_FALSE(is_there(4) || is_there(5));
    EXPECT_TRUE(is_right(3));
    store.reach_backward(1);
    EXPECT_TRUE(is_right(1) && !is_there(3));
    store.reach_backward(0);
    store.end_backward();
    for (size_t i = 0; i < net.places.size(); ++i) EXPECT_FALSE(is_there(i)) << i;
    // 700 + 320 + 300 + 8 elements, each unit rounded up to 3 equal shares.
    EXPECT_EQ(store.kept_bytes(), 4 * (256 + 256 + 256 + 256));
  });
}

// As in a stage of a pipeline: each backward takes along what its forward has kept.
TEST(ParameterStore, AForwardBetweenForwardAndBackward) {
  on_ranks(2, [&](const Mesh& mesh) {
    Net net;
    ParameterStore store(mesh, {.sharding = Sharding::kParameters}, {{{0, 3}}, 3});
    store.lay_out(net.places, /*keeps_values=*/true);
    const auto is_there = [&](size_t index) {
      return net.places[index]->tensor.storage().nbytes() > 0;
    };
    const auto forward = [&] {
      for (int64_t place = 0; place < 4; ++place) {
        store.before_forward(place);
        store.after_forward(place, true);
      }
    };
    const auto backward = [&] {
      store.begin_backward(3);
      for (const int64_t place : {2, 1, 0}) store.reach_backward(place);
      store.end_backward();
    };
    forward();
    forward();
    backward();
    EXPECT_TRUE(is_there(4)) << "the second backward begins here";
    forward();
    backward();
    EXPECT_TRUE(is_there(4));
    backward();
    for (size_t i = 0; i < net.places.size(); ++i) EXPECT_FALSE(is_there(i)) << i;
    // A step that ends with an error has no backward.
    forward();
    EXPECT_TRUE(is_there(4));
    store.begin_step();
    for (size_t i = 0; i < net.places.size(); ++i) EXPECT_FALSE(is_there(i)) << i;
  });
}

TEST(ParameterStore, AnIdlePassMeetsAnotherRanks) {
  on_ranks(2, [&](const Mesh& mesh) {
    Net net;
    ParameterStore store(mesh, {.sharding = Sharding::kParameters}, {{{0, 3}}, 3});
    store.lay_out(net.places, /*keeps_values=*/true);
    std::vector<std::string> told;
    store.listen({[&](size_t unit) { told.push_back("to " + store.units()[unit].name()); },
                  [&](size_t unit) { told.push_back("after " + store.units()[unit].name()); }});
    if (mesh.rank() == 0) {
      store.forward_idly(0, true);
      store.backward_idly(0);
    } else {
      for (int64_t place = 0; place < 4; ++place) {
        store.before_forward(place);
        store.after_forward(place, true);
      }
      store.begin_backward(3);
      for (const int64_t place : {2, 1, 0}) store.reach_backward(place);
      store.end_backward();
    }
    // The embedding is needed with the head, which it is tied to.
    EXPECT_THAT(told, ElementsAre("to norm", "to embedding", "after norm", "to a.1", "after a.1",
                                  "to a.0", "after a.0", "to embedding", "after embedding"));
  });
}

// The lower layers of a first stage, frozen, some of them recomputed together.
TEST(ParameterStore, AnIdlePassOfFrozenLayersHasNoBackwardAsOthersHaveNone) {
  on_ranks(2, [&](const Mesh& mesh) {
    Net net;
    net.places.resize(4);  // as in a stage without the head
    for (Parameter* parameter : net.places) parameter->trainable = false;
    ParameterStore store(mesh, {.sharding = Sharding::kParameters}, {{{0, 2}}, 3});
    store.lay_out(net.places, /*keeps_values=*/true);
    store.join_in_backward({{1, 2}});
    const auto sent = [&] {
      return mesh.background().batch_ranks().traffic().bytes + mesh.batch_ranks().traffic().bytes;
    };
    store.forward_idly(0, true);
    const int64_t forward = sent();
    store.backward_idly(0);
    EXPECT_GT(forward, 0);
    EXPECT_EQ(sent(), forward);
    for (size_t i = 0; i < net.places.size(); ++i)
      EXPECT_EQ(net.places[i]->tensor.storage().nbytes(), 0u) << i;
  });
}

TEST(ParameterStore, APublishedUnitIsEverybodysWhereAPassComesToIt) {
  on_ranks(2, [&](const Mesh& mesh) {
    Net net;
    ParameterStore store(mesh, {.sharding = Sharding::kState}, {{{0, 3}}, 3});
    store.lay_out(net.places, /*keeps_values=*/true);
    for (size_t unit = 0; unit < store.units().size(); ++unit) {
      at::Tensor(store.units()[unit].shard).fill_(static_cast<double>(10 + mesh.rank()));
      store.publish(unit);
    }
    store.forward_idly(0, false);
    const at::Tensor& embedding = net.places[0]->tensor;  // 700 elements in shares of 512
    EXPECT_EQ(embedding[511].item<float>(), 10);
    EXPECT_EQ(embedding[512].item<float>(), 11);
  });
}

TEST(ParameterStore, WhatIsFilledIsKeptInShares) {
  on_ranks(2, [&](const Mesh& mesh) {
    Net net;
    for (Parameter* parameter : net.places) parameter->trainable = false;
    ParameterStore store(mesh, {.sharding = Sharding::kParameters}, {{{0, 3}}, 3});
    store.lay_out(net.places, /*keeps_values=*/false);
    store.fill(1, [&] {
      net.places[1]->tensor.fill_(7);
      net.places[2]->tensor.fill_(8);
    });
    store.with(1, [&] {
      EXPECT_TRUE(net.places[1]->tensor.eq(7).all().item<bool>());
      EXPECT_TRUE(net.places[2]->tensor.eq(8).all().item<bool>());
    });
  });
}

TEST(Background, JobsAreDoneInOrderAndAFailureIsEverybodysAfterIt) {
  Background background([] {});
  std::vector<int> done;
  const auto first = background.run([&] { done.push_back(1); }, at::kCPU);
  const auto second = background.run([] { throw CommError("cut off"); }, at::kCPU);
  const auto third = background.run([&] { done.push_back(3); }, at::kCPU);
  first.get();
  EXPECT_THROW(second.get(), CommError);
  EXPECT_THROW(third.get(), CommError);
  EXPECT_THAT(done, ElementsAre(1));
}

// The other rank lives on: its end would let go of what waits for it.
TEST(Background, AnExceptionDoesNotWaitForRanksThatNeverCome) {
  std::atomic<bool> has_left = false;
  const auto leave = [](const Mesh& mesh) {
    Net net;
    ParameterStore store(mesh, {.sharding = Sharding::kState}, {{{0, 3}}, 3});
    store.lay_out(net.places, /*keeps_values=*/true);
    store.publish(0);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // until its thread waits there
    throw UsageError("rank 0 leaves");
  };
  on_ranks(2, [&](const Mesh& mesh) {
    if (mesh.rank() > 0) {
      if (!test::comes_true([&] { return has_left.load(); }))
        throw std::runtime_error("rank 0 waits for rank 1");
      return;
    }
    EXPECT_THROW(leave(mesh), UsageError);
    has_left = true;
  });
}

}  // namespace store_test
}  // namespace danlu::parallel
