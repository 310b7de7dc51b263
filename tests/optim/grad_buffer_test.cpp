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

namespace danlu::optim {
namespace grad_buffer_test {

TEST(GradBuffer, F32GradientsAreSummedInPlaceByAutograd) {
  const at::Tensor w = at::ones({3}).requires_grad_(true);
  GradBuffer gradients({parallel::whole_parameter("w", w)}, parallel::Mesh::single());
  gradients.zero();
  (w * 2).sum().backward();
  gradients.collect();
  (w * 3).sum().backward();
  gradients.collect();
  EXPECT_TRUE(at::equal(gradients.grad(0), at::full({3}, 5.0f)));
}

TEST(GradBuffer, Bf16GradientsAreSummedInF32) {
  // 256 + 1 stays 256 in bf16 (8 significant bits): a sum of micro-batches kept in bf16 would lose
  // the ones.
  const at::Tensor w = at::ones({70000}, at::kBFloat16).requires_grad_(true);
  GradBuffer gradients({parallel::whole_parameter("w", w)}, parallel::Mesh::single());
  gradients.zero();
  (w * 256).sum().backward();
  gradients.collect();
  for (int i = 0; i < 3; ++i) {
    w.sum().backward();
    gradients.collect();
  }
  EXPECT_TRUE(at::equal(gradients.grad(0), at::full({70000}, 259.0f)));
  EXPECT_FALSE(w.grad().defined());
}

TEST(GradBuffer, NormIsTheSameForEveryThreadCount) {
  at::manual_seed(1);
  const at::Tensor w = at::randn({200003}).requires_grad_(true),
                   v = at::randn({17}).requires_grad_(true);
  GradBuffer gradients({parallel::whole_parameter("w", w), parallel::whole_parameter("v", v)},
                       parallel::Mesh::single());
  at::Tensor(gradients.grad(0)).copy_(at::randn({200003}));
  at::Tensor(gradients.grad(1)).copy_(at::randn({17}));
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const double one = gradients.norm(0.5);
  at::set_num_threads(2);
  const double two = gradients.norm(0.5);
  at::set_num_threads(threads);
  EXPECT_EQ(one, two);
  const double want = 0.5 * gradients.flat().to(at::kDouble).square().sum().sqrt().item<double>();
  EXPECT_NEAR(one, want, 1e-12 * want);
}

TEST(GradBuffer, NamesNonFiniteGradients) {
  const at::Tensor a = at::ones({2}).requires_grad_(true), b = at::ones({2}).requires_grad_(true);
  GradBuffer gradients({parallel::whole_parameter("a", a), parallel::whole_parameter("b", b)},
                       parallel::Mesh::single());
  gradients.zero();
  at::Tensor(gradients.grad(1)).fill_(std::numeric_limits<float>::quiet_NaN());
  EXPECT_FALSE(std::isfinite(gradients.norm(1.0)));
  EXPECT_EQ(gradients.non_finite(8), std::vector<std::string>{"b"});
}

}  // namespace grad_buffer_test
}  // namespace danlu::optim
