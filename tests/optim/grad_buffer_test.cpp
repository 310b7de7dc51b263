#include "optim/grad_buffer.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ops/linear.h"
#include "parallel/comm/local.h"
#include "support/stored_parameters.h"

namespace danlu::optim {
namespace grad_buffer_test {

using Stored = danlu::test::StoredParameters;

TEST(GradBuffer, F32GradientsAreSummedInPlaceByAutograd) {
  Stored stored({parallel::whole_parameter("w", at::ones({3}))});
  const at::Tensor w = stored.parameters[0].tensor;
  GradBuffer gradients(stored.store);
  gradients.zero();
  stored.backward((w * 2).sum());
  stored.backward((w * 3).sum());
  EXPECT_TRUE(at::equal(gradients.grad(0, 0), at::full({3}, 5.0f)));
  EXPECT_TRUE(w.grad().is_alias_of(gradients.share(0)));
}

TEST(GradBuffer, Bf16GradientsAreSummedInF32) {
  // 256 + 1 stays 256 in bf16 (8 significant bits): a sum of micro-batches kept in bf16 would lose
  // the ones.
  Stored stored({parallel::whole_parameter("w", at::ones({70000}, at::kBFloat16))});
  const at::Tensor w = stored.parameters[0].tensor;
  GradBuffer gradients(stored.store);
  gradients.zero();
  stored.backward((w * 256).sum());
  for (int i = 0; i < 3; ++i) stored.backward(w.sum());
  EXPECT_TRUE(at::equal(gradients.grad(0, 0), at::full({70000}, 259.0f)));
  EXPECT_FALSE(w.grad().defined());
}

TEST(GradBuffer, NormIsTheSameForEveryThreadCount) {
  at::manual_seed(1);
  Stored stored({parallel::whole_parameter("w", at::randn({200003})),
                 parallel::whole_parameter("v", at::randn({17}))});
  GradBuffer gradients(stored.store);
  gradients.grad(0, 0).copy_(at::randn({200003}));
  gradients.grad(0, 1).copy_(at::randn({17}));
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const double one = gradients.norm(0.5);
  at::set_num_threads(2);
  const double two = gradients.norm(0.5);
  at::set_num_threads(threads);
  EXPECT_EQ(one, two);
  const double want = 0.5 * gradients.share(0).to(at::kDouble).square().sum().sqrt().item<double>();
  EXPECT_NEAR(one, want, 1e-12 * want);
}

TEST(GradBuffer, NamesNonFiniteGradients) {
  Stored stored({parallel::whole_parameter("a", at::ones({2})),
                 parallel::whole_parameter("b", at::ones({2}))});
  GradBuffer gradients(stored.store);
  gradients.zero();
  gradients.grad(0, 1).fill_(std::numeric_limits<float>::quiet_NaN());
  EXPECT_FALSE(std::isfinite(gradients.norm(1.0)));
  EXPECT_EQ(gradients.non_finite(8), std::vector<std::string>{"b"});
}

// Two units would be two buffers; here one, of a weight that a product adds to by itself and one
// that is autograd's.
TEST(GradBuffer, HasMemoryFromTheFirstGradientUntilTheNextStep) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    SCOPED_TRACE(c10::toString(type));
    Stored stored({parallel::whole_parameter("w", at::ones({3, 4}, type)),
                   parallel::whole_parameter("v", at::ones({3}, type))});
    const parallel::Parameter &w = stored.parameters[0], &v = stored.parameters[1];
    GradBuffer gradients(stored.store);
    EXPECT_EQ(gradients.kept_bytes(), 512 * 4);  // each begins at a multiple of 256 elements
    const auto loss = [&] {
      return (ops::linear(at::ones({2, 4}, type), w.tensor, {}, {w.main_grad, {}}) * v.tensor)
          .sum();
    };
    for (int step = 0; step < 2; ++step) {
      gradients.zero();
      EXPECT_EQ(gradients.absent_bytes(), gradients.kept_bytes());
      EXPECT_FALSE(w.main_grad->sum.defined());
      for (int pass = 1; pass <= 2; ++pass) {
        const at::Tensor scalar = loss();
        EXPECT_EQ(gradients.absent_bytes(), pass == 1 ? gradients.kept_bytes() : 0);
        stored.backward(scalar);
        EXPECT_EQ(gradients.absent_bytes(), 0);
        // Two rows of ones times v = 1; sums over two rows of x w = 4 each.
        EXPECT_TRUE(at::equal(gradients.grad(0, 0), at::full({3, 4}, 2.0f * pass)));
        EXPECT_TRUE(at::equal(gradients.grad(0, 1), at::full({3}, 8.0f * pass)));
      }
      // What lies between weights counts in no norm, but is exchanged: 12 x 4^2 + 3 x 16^2.
      EXPECT_EQ(gradients.share(0).square().sum().item<double>(), 960.0);
    }
  }
}

TEST(GradBuffer, OfAStepThatReachesNothingIsZero) {
  Stored stored({parallel::whole_parameter("w", at::ones({300}))});
  GradBuffer gradients(stored.store);
  gradients.zero();
  stored.backward((stored.parameters[0].tensor * 2).sum());
  gradients.zero();
  gradients.finish();
  EXPECT_EQ(gradients.absent_bytes(), 0);
  EXPECT_EQ(gradients.norm(1.0), 0.0);
  EXPECT_FALSE(stored.parameters[0].tensor.grad().defined());
}

// What an operator overwrites need not be zeroed; who adds later finds its sum.
TEST(GradBuffer, AnOperatorMayOverwriteWhatIsFresh) {
  Stored stored({parallel::whole_parameter("w", at::ones({70000}))});
  GradBuffer gradients(stored.store);
  gradients.zero();
  const ops::MainGradPtr main = stored.parameters[0].main_grad;
  ASSERT_TRUE(ops::has_place(main));
  main->sum.fill_(std::numeric_limits<float>::quiet_NaN());  // as memory may be that is used again
  ASSERT_TRUE(ops::is_first(main));
  main->sum.fill_(5);
  ASSERT_TRUE(ops::takes_grad(main));
  EXPECT_FALSE(ops::is_first(main));
  main->sum.add_(1);
  EXPECT_TRUE(at::equal(gradients.grad(0, 0), at::full({70000}, 6.0f)));
}

// Four experts dealt over two ranks of the data axis, beside a parameter that every rank has: each
// sum goes over the ranks that hold the same, and the norm counts everything once.
TEST(GradBuffer, ExpertsAreSummedOverTheRanksThatHoldThem) {
  using parallel::Sharding;
  struct How {
    Sharding sharding;
    int64_t sharers;
  };
  for (const auto& [sharding, sharers] :
       {How{Sharding::kNone, 0}, How{Sharding::kState, 0}, How{Sharding::kGradients, 0},
        How{Sharding::kParameters, 0}, How{Sharding::kState, 4}, How{Sharding::kParameters, 4}}) {
    SCOPED_TRACE(testing::Message() << static_cast<int>(sharding) << " " << sharers);
    const parallel::MeshShape shape{.data = 8, .sharers = sharers, .expert = 2};
    parallel::run_local_ranks(8, [&, sharding = sharding](parallel::World& world) {
      const parallel::Mesh mesh(world, shape);
      const int64_t owner = world.rank() % 2;
      std::vector<parallel::Parameter> parameters = {
          parallel::whole_parameter("dense", at::ones({5}))};
      for (int64_t expert = 0; expert < 4; ++expert) {
        const bool mine = expert / 2 == owner;
        parameters.push_back(parallel::whole_parameter("expert", at::ones({mine ? 3 : 0})));
        parameters.back().spec.expert = expert;
        parameters.back().spec.name += std::to_string(expert);
        if (!mine) parameters.back().rects.clear();
      }
      std::vector<parallel::Parameter*> places;
      for (parallel::Parameter& parameter : parameters) places.push_back(&parameter);
      parallel::ParameterStore store(mesh, {.sharding = sharding}, {{{0, 1}}, 1});
      store.lay_out(places, /*keeps_values=*/true);
      GradBuffer gradients(store);
      gradients.zero();
      store.before_forward(0);
      at::Tensor loss = at::zeros({});
      for (size_t i = 0; i < parameters.size(); ++i)
        loss = loss + parameters[i].tensor.sum() * static_cast<double>(world.rank() + 10 * i);
      store.after_forward(0, /*keeps=*/true);
      gradients.begin_pass(/*last=*/true);
      store.begin_backward(1);
      store.reach_backward(0);
      loss.backward();
      gradients.end_pass();
      gradients.finish();
      double squares = 5 * 28.0 * 28.0;  // 0 + 1 + … + 7
      for (int64_t expert = 0; expert < 4; ++expert) {
        // The copies' ranks are 0, 2, 4, 6, or 1, 3, 5, 7.
        const double sum = (expert < 2 ? 12.0 : 16.0) + 4 * 10.0 * static_cast<double>(expert + 1);
        squares += 3 * sum * sum;
      }
      EXPECT_NEAR(gradients.norm(1.0), std::sqrt(squares), 1e-9);
      for (size_t u = 0; u < store.units().size(); ++u) {
        const parallel::Unit& unit = store.units()[u];
        for (size_t i = 0; i < unit.parameters.size(); ++i) {
          const int64_t expert = unit.parameters[i]->spec.expert;
          const double sum =
              expert < 0 ? 28.0
                         : (owner == 0 ? 12.0 : 16.0) + 40.0 * static_cast<double>(expert + 1);
          const parallel::Range part = unit.place_in_share(i);
          const at::Tensor share = gradients.share(u);
          const at::Tensor mine = sharding == Sharding::kNone
                                      ? gradients.grad(u, i)
                                      : share.narrow(0, part.begin, part.size());
          EXPECT_TRUE(mine.eq(sum).all().item<bool>()) << unit.parameters[i]->name();
        }
      }
    });
  }
}

}  // namespace grad_buffer_test
}  // namespace danlu::optim
