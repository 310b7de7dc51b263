#include "optim/grad_buffer.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <limits>

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

}  // namespace grad_buffer_test
}  // namespace danlu::optim
