// Groups, meshes and the borders of regions: one contract for every transport.
#include "parallel/mesh.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "base/error.h"
#include "base/free_port.h"
#include "parallel/comm/c10d.h"
#include "parallel/comm/local.h"
#include "support/comes_true.h"

namespace danlu::parallel {
namespace {

enum class Transport { kLocal, kC10d };

/// Ranks as threads of this process; with kC10d every one has its own connections.
void run_ranks(Transport transport, int64_t ranks, const std::function<void(World&)>& body) {
  if (transport == Transport::kLocal) return run_local_ranks(ranks, body);
  const int64_t port = free_port().value();
  run_local_ranks(ranks, [&](World& place) {
    const auto world = connect_c10d({.rank = place.rank(),
                                     .size = ranks,
                                     .master_address = "127.0.0.1",
                                     .master_port = port,
                                     .timeout = std::chrono::minutes(10)});
    body(*world);
    // Whoever leaves first takes its connections, and rank 0 the store, from the others.
    place.make_group_of_all()->barrier();
  });
}

/// What rank `rank` puts in, the same in every run.
at::Tensor values_of(int64_t rank, at::IntArrayRef shape, at::ScalarType dtype) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return (at::arange(count, at::kDouble) * 0.37 + static_cast<double>(rank) * 1.7)
      .sin()
      .view(shape)
      .to(dtype);
}

TEST(Mesh, OfOneRankIsTheIdentity) {
  const Group& group = Mesh::single().tensor();
  at::Tensor x = at::arange(6, at::kFloat).view({2, 3});
  const at::Tensor before = x.clone();
  group.all_reduce_sum(x);
  group.broadcast(x, 0);
  group.barrier();
  EXPECT_TRUE(at::equal(x, before));
  EXPECT_TRUE(at::equal(group.all_gather(x, 1), before));
  EXPECT_TRUE(at::equal(group.reduce_scatter_sum(x, 0), before));
  EXPECT_TRUE(Mesh::single().region().enter(x).is_same(x));
  EXPECT_TRUE(Mesh::single().region().leave(x).is_same(x));
  EXPECT_EQ(group.traffic().bytes, 0);
}

class Contract : public testing::TestWithParam<Transport> {};
INSTANTIATE_TEST_SUITE_P(Transports, Contract,
                         testing::Values(Transport::kLocal, Transport::kC10d));

TEST_P(Contract, NeighboursShareTheTensorAxis) {
  run_ranks(GetParam(), 8, [](World& world) {
    const Mesh mesh(world, {.tensor = 4, .data = 2});
    EXPECT_EQ(mesh.tensor().size(), 4);
    EXPECT_EQ(mesh.tensor().rank(), world.rank() % 4);
    EXPECT_EQ(mesh.batch_ranks().size(), 2);
    EXPECT_EQ(mesh.batch_ranks().rank(), world.rank() / 4);
    EXPECT_EQ(world.make_group_of_all()->size(), 8);
    EXPECT_EQ(mesh.neighbours(2).size(), 2);
    at::Tensor mine = at::full({1}, world.rank(), at::kLong);
    mesh.neighbours(2).all_reduce_sum(mine);
    EXPECT_EQ(mine.item<int64_t>(), world.rank() / 2 * 4 + 1);
    at::Tensor across = at::full({1}, world.rank(), at::kLong);
    mesh.batch_ranks().all_reduce_sum(across);
    EXPECT_EQ(across.item<int64_t>(), world.rank() % 4 * 2 + 4);
  });
}

void expect_collectives(Transport transport, at::ScalarType dtype, int64_t columns) {
  constexpr int64_t kRanks = 3;
  std::vector<at::Tensor> inputs;
  for (int64_t rank = 0; rank < kRanks; ++rank)
    inputs.push_back(values_of(rank, {6, columns}, dtype));
  const at::ScalarType wide = dtype == at::kDouble ? at::kDouble : at::kFloat;
  at::Tensor sum = inputs[0].to(wide);
  for (size_t rank = 1; rank < inputs.size(); ++rank) sum = sum + inputs[rank].to(wide);
  sum = sum.to(dtype);
  run_ranks(transport, kRanks, [&](World& world) {
    const Mesh mesh(world, {.data = kRanks});
    const Group& group = mesh.batch_ranks();
    const at::Tensor mine = inputs[static_cast<size_t>(world.rank())];
    at::Tensor reduced = mine.clone();
    group.all_reduce_sum(reduced);
    EXPECT_TRUE(at::equal(reduced, sum));
    at::Tensor largest = mine.clone();
    group.all_reduce_max(largest);
    EXPECT_TRUE(at::equal(largest, at::stack(inputs).amax(0)));
    for (const int64_t dim : {0, 1})
      EXPECT_TRUE(at::equal(group.all_gather(mine, dim), at::cat(inputs, dim)));
    const at::Tensor gathered = group.gather(mine, 1);
    EXPECT_EQ(gathered.defined(), world.rank() == 1);
    if (gathered.defined()) {
      EXPECT_TRUE(at::equal(gathered.view(-1), at::cat(inputs).view(-1)));
    }
    EXPECT_TRUE(at::equal(group.reduce_scatter_sum(mine, 0), sum.narrow(0, world.rank() * 2, 2)));
    EXPECT_TRUE(
        at::equal(group.reduce_scatter_sum(mine.t(), 1), sum.t().narrow(1, world.rank() * 2, 2)));
    at::Tensor sent = mine.clone();
    group.broadcast(sent, 1);
    EXPECT_TRUE(at::equal(sent, inputs[1]));
    EXPECT_THROW(group.reduce_scatter_sum(mine.narrow(0, 0, 4), 0), InternalError);
  });
}

// Longer than what is sent at a time, and no multiple of it; a rank's own part may be where its sum
// goes to.
TEST_P(Contract, StagesStandOutermostAndPassOnToTheirNeighbours) {
  run_ranks(GetParam(), 6, [](World& world) {
    const Mesh mesh(world, {.tensor = 2, .pipeline = 3});
    EXPECT_EQ(mesh.stage(), world.rank() / 2);
    EXPECT_EQ(mesh.pipeline().rank(), mesh.stage());
    EXPECT_EQ(mesh.saving().pipeline().size(), 3);
    EXPECT_EQ(mesh.ends().size(), mesh.stage() == 1 ? 1 : 2);
    at::Tensor sum = at::full({1}, world.rank(), at::kLong);
    mesh.pipeline().all_reduce_sum(sum);
    EXPECT_EQ(sum.item<int64_t>(), 6 + 3 * (world.rank() % 2));
    at::Tensor hidden = at::full({300}, static_cast<double>(world.rank()), at::kBFloat16);
    using Way = Mesh::Way;
    if (mesh.stage() > 0) {
      mesh.with_previous(Way::kHidden).pass_on(hidden, 0, 1);
      EXPECT_EQ(hidden[299].item<double>(), static_cast<double>(world.rank() % 2));
      EXPECT_EQ(mesh.with_previous(Way::kHidden).traffic().bytes, 0);
    }
    if (mesh.stage() < 2) {
      mesh.with_next(Way::kHidden).pass_on(hidden, 0, 1);
      EXPECT_EQ(mesh.with_next(Way::kHidden).traffic().bytes, 600);
      mesh.with_next(Way::kGrad).pass_on(hidden, 1, 0);
      EXPECT_EQ(mesh.with_next(Way::kGrad).traffic().bytes, 0);
    }
    if (mesh.stage() > 0) mesh.with_previous(Way::kGrad).pass_on(hidden, 1, 0);
    // Between two of a larger group the others have nothing to do.
    at::Tensor said = at::full({3}, mesh.stage(), at::kFloat);
    mesh.pipeline().pass_on(said, 2, 0);
    EXPECT_EQ(said[1].item<float>(), mesh.stage() == 1 ? 1 : 2);
  });
}

TEST_P(Contract, SumsOfManyPieces) {
  for (const int64_t ranks : {2, 4}) {
    const int64_t part = 900'000 + ranks, elements = ranks * part;
    std::vector<at::Tensor> inputs;
    for (int64_t rank = 0; rank < ranks; ++rank)
      inputs.push_back(values_of(rank, {elements}, at::kFloat));
    at::Tensor sum = inputs[0];
    for (size_t rank = 1; rank < inputs.size(); ++rank) sum = sum + inputs[rank];
    run_ranks(GetParam(), ranks, [&](World& world) {
      const Mesh mesh(world, {.data = ranks});
      const Group& group = mesh.batch_ranks();
      at::Tensor all = inputs[static_cast<size_t>(world.rank())].clone();
      at::Tensor mine = all.narrow(0, world.rank() * part, part);
      group.reduce_scatter_into(all, mine);
      EXPECT_TRUE(at::equal(mine, sum.narrow(0, world.rank() * part, part)));
      EXPECT_EQ(group.traffic().bytes, (ranks - 1) * part * 4);
      group.all_gather_into(mine, all);
      EXPECT_TRUE(at::equal(all, sum));
      at::Tensor odd = inputs[static_cast<size_t>(world.rank())].narrow(0, 1, elements - 1).clone();
      group.all_reduce_sum(odd);
      EXPECT_TRUE(at::equal(odd, sum.narrow(0, 1, elements - 1)));
    });
  }
}

TEST_P(Contract, NothingIsNothingsSum) {
  run_ranks(GetParam(), 2, [](World& world) {
    const Mesh mesh(world, {.data = 2});
    at::Tensor nothing = at::full({0}, 1, at::kFloat);
    mesh.batch_ranks().all_reduce_sum(nothing);
    mesh.batch_ranks().reduce_scatter_into(nothing, nothing);
    mesh.batch_ranks().all_gather_into(nothing, nothing);
    EXPECT_EQ(mesh.batch_ranks().traffic().bytes, 0);
  });
}

class Collectives : public testing::TestWithParam<std::tuple<Transport, at::ScalarType>> {};
INSTANTIATE_TEST_SUITE_P(All, Collectives,
                         testing::Combine(testing::Values(Transport::kLocal, Transport::kC10d),
                                          testing::Values(at::kFloat, at::kDouble, at::kBFloat16,
                                                          at::kHalf)));

TEST_P(Collectives, EqualWhatOneProcessComputes) {
  const auto [transport, dtype] = GetParam();
  for (const int64_t columns : {2, 1001}) {  // few numbers take another way than many
    SCOPED_TRACE(columns);
    expect_collectives(transport, dtype, columns);
  }
}

TEST_P(Contract, ANoteIsSeenByEveryRank) {
  std::atomic<bool> written = false;
  run_ranks(GetParam(), 3, [&](World& world) {
    if (world.rank() == 1) {
      written = true;
      world.post("a turn");
    }
    world.wait_for("a turn");
    EXPECT_TRUE(written);
  });
}

TEST_P(Contract, AnAbortedGroupIsWaitedInNoMoreAndOthersWork) {
  run_ranks(GetParam(), 2, [](World& world) {
    const auto aborted = world.make_group_of_all(), other = world.make_group_of_all();
    at::Tensor is_stuck = at::zeros({1}, at::kLong);
    if (world.rank() == 0) {
      auto waiting = std::async(std::launch::async, [&] { aborted->barrier(); });
      std::this_thread::sleep_for(std::chrono::milliseconds(300));  // until it is in there
      aborted->abort();
      is_stuck.fill_(!test::comes_true(
          [&] { return waiting.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }));
      EXPECT_FALSE(is_stuck.item<int64_t>()) << "rank 1 lives, and was waited for";
      other->broadcast(is_stuck, 0);
      EXPECT_THROW(waiting.get(), CommError);
      if (is_stuck.item<int64_t>()) return;
      EXPECT_THROW(aborted->barrier(), CommError);
    } else {
      other->broadcast(is_stuck, 0);
      if (is_stuck.item<int64_t>()) return aborted->barrier();  // lets go of it
    }
    other->barrier();
  });
}

// 256 + 1 is 256 in bf16, so a sum that is rounded on its way loses every later rank.
TEST_P(Contract, SumsAreMadeInF32) {
  run_ranks(GetParam(), 4, [&](World& world) {
    const Mesh mesh(world, {.data = 4});
    at::Tensor x = at::full({3}, world.rank() == 0 ? 256.0 : 1.0, at::kBFloat16);
    const at::Tensor whole = x.repeat({4});
    EXPECT_EQ(mesh.batch_ranks().reduce_scatter_sum(whole, 0)[0].item<double>(), 260);
    mesh.batch_ranks().all_reduce_sum(x);
    EXPECT_EQ(x[0].item<double>(), 260);
  });
}

TEST_P(Contract, CountsTheTextbooksBytes) {
  run_ranks(GetParam(), 4, [&](World& world) {
    const Mesh mesh(world, {.data = 4});
    const Group& group = mesh.batch_ranks();
    constexpr int64_t kBytes = 800 * 4;
    at::Tensor x = at::ones({800}, at::kFloat);
    group.all_reduce_sum(x);
    EXPECT_EQ(group.traffic().bytes, 2 * 3 * kBytes / 4);
    group.all_gather(x, 0);
    EXPECT_EQ(group.traffic().bytes, 6 * kBytes / 4 + 3 * kBytes);
    group.reduce_scatter_sum(x, 0);
    EXPECT_EQ(group.traffic().bytes, 6 * kBytes / 4 + 3 * kBytes + 3 * kBytes / 4);
    group.gather(x, 2);
    const int64_t given = world.rank() == 2 ? 0 : kBytes;
    EXPECT_EQ(group.traffic().bytes, 6 * kBytes / 4 + 3 * kBytes + 3 * kBytes / 4 + given);
    EXPECT_EQ(group.traffic().calls, 4);
  });
}

/// y = f(x W1) W2, columns of W1 and rows of W2 cut over ranks.
TEST_P(Contract, RegionsGiveOutputAndGradientsOfTheWholeNetwork) {
  constexpr int64_t kRanks = 2;
  const at::Tensor x = values_of(0, {4, 3}, at::kDouble), w1 = values_of(1, {3, 6}, at::kDouble),
                   w2 = values_of(2, {6, 3}, at::kDouble);
  const at::Tensor leaf = x.clone().requires_grad_(true);
  const at::Tensor whole = leaf.matmul(w1).tanh().matmul(w2).square();
  const at::Tensor expected = torch::autograd::grad({whole.sum()}, {leaf})[0];
  for (const bool sequence : {false, true}) {
    run_ranks(GetParam(), kRanks, [&](World& world) {
      const Mesh mesh(world, {.tensor = kRanks, .sequence_parallel = sequence});
      const int64_t rank = world.rank();
      const auto rows = [&](const at::Tensor& of) {
        return sequence ? of.narrow(0, rank * 2, 2) : of;
      };
      const at::Tensor mine = rows(x).clone().requires_grad_(true);
      const Region region = mesh.region();
      const at::Tensor inside = region.enter(mine).matmul(w1.narrow(1, rank * 3, 3)).tanh();
      const at::Tensor out = region.leave(inside.matmul(w2.narrow(0, rank * 3, 3))).square();
      EXPECT_TRUE(at::allclose(out, rows(whole.detach()))) << sequence;
      const at::Tensor grad = torch::autograd::grad({out.sum()}, {mine})[0];
      EXPECT_TRUE(at::allclose(grad, rows(expected))) << sequence;
      // Two exchanges a pass and direction, of the whole activations either way.
      EXPECT_EQ(mesh.tensor().traffic().calls, sequence ? 4 : 2);
      EXPECT_EQ(mesh.tensor().traffic().bytes, 2 * 4 * 3 * 8);
    });
  }
}

TEST(C10d, WhoDoesNotComeIsNamed) {
  const int64_t port = free_port().value();
  try {
    run_local_ranks(2, [&](World& place) {
      connect_c10d({.rank = place.rank() * 2,  // rank 1 of 3 is missing
                    .size = 3,
                    .master_address = "127.0.0.1",
                    .master_port = port,
                    .timeout = std::chrono::seconds(6)});
    });
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kComm);
    EXPECT_THAT(error.what(), testing::EndsWith("these did not come: 1"));
  }
}

TEST(C10d, ARankThatIsThereTwiceEndsAllThatMeet) {
  const int64_t port = free_port().value();
  std::atomic<int> refused = 0;
  run_local_ranks(3, [&](World& place) {
    try {
      connect_c10d({.rank = std::min<int64_t>(place.rank(), 1),  // rank 2 of 3 never comes
                    .size = 3,
                    .master_address = "127.0.0.1",
                    .master_port = port,
                    .timeout = std::chrono::minutes(20),
                    .end = [](const Verdict&) {}});
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kUsage);
      EXPECT_THAT(error.what(), testing::ContainsRegex("rank 1 is there twice: on .* \\(process "
                                                       "[0-9]+\\) and on .* \\(process [0-9]+\\)"));
      ++refused;
    }
  });
  EXPECT_EQ(refused, 3);
}

TEST(C10d, ATakenPortIsNamed) {
  const int64_t port = free_port().value();
  const C10dJob job{.rank = 0,
                    .size = 1,
                    .master_address = "127.0.0.1",
                    .master_port = port,
                    .timeout = std::chrono::minutes(10)};
  const auto first = connect_c10d(job);
  try {
    connect_c10d(job);
    ADD_FAILURE() << "no error";
  } catch (const CommError& error) {
    EXPECT_THAT(error.what(), testing::EndsWith(std::to_string(port) + ": another program does"));
  }
}

/// So that who wakes a rank is not stopped with a lock that another thread spins for.
TEST(C10d, ThreadsOfARankWaitForAPlaceUnlessTheyAreScheduledOtherwise) {
  const auto policy_of = [](int chosen) {
    int later = -1;
    std::thread([&] {
      const sched_param none{};
      EXPECT_EQ(::sched_setscheduler(0, chosen, &none), 0);
      const auto world = connect_c10d({.rank = 0,
                                       .size = 1,
                                       .master_address = "127.0.0.1",
                                       .master_port = free_port().value(),
                                       .timeout = std::chrono::minutes(10)});
      std::thread([&] { later = ::sched_getscheduler(0); }).join();
    }).join();
    return later;
  };
  EXPECT_EQ(policy_of(SCHED_OTHER), SCHED_BATCH);
  EXPECT_EQ(policy_of(SCHED_IDLE), SCHED_IDLE);
}

TEST(LocalRanks, ARankThatFailsEndsTheOthersAndItsErrorIsTheOneSeen) {
  std::atomic<int> ended = 0;
  try {
    run_local_ranks(3, [&](World& world) {
      const Mesh mesh(world, {.data = 3});
      if (world.rank() == 1) throw DataError("rank 1 has no rows");
      try {
        mesh.batch_ranks().barrier();
      } catch (const CommError&) {
        ++ended;
        throw;
      }
    });
    ADD_FAILURE() << "no error";
  } catch (const DataError& error) {
    EXPECT_STREQ(error.what(), "rank 1 has no rows");
  }
  EXPECT_EQ(ended, 2);
}

TEST(LocalRanks, AnAbortedExchangeIsNotTheErrorThatIsSeen) {
  try {
    run_local_ranks(2, [&](World& world) {
      const auto group = world.make_group_of_all();
      if (world.rank() == 0) group->abort();
      try {
        group->barrier();
      } catch (const CommError&) {
        if (world.rank() == 0) throw;
        throw DataError("why it was aborted");
      }
    });
    ADD_FAILURE() << "no error";
  } catch (const DataError& error) {
    EXPECT_STREQ(error.what(), "why it was aborted");
  }
}

}  // namespace
}  // namespace danlu::parallel
