// Heads put together from two tensors, and products with a matrix of each head's own.
#include "ops/head_parts.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/einsum.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "base/error.h"
#include "ops/kernels.h"

namespace danlu::ops {
namespace head_parts_test {

at::Tensor leaf(at::IntArrayRef sizes, at::ScalarType type = at::kFloat) {
  return at::randn(sizes).to(type).requires_grad_(true);
}

TEST(Beside, IsAConcatenationWithItsGradients) {
  for (const int64_t heads : {1, 5}) {
    const at::Tensor first = leaf({7, 5, 3}), last = leaf({7, heads, 4}), by = at::randn({7, 5, 7});
    const at::Tensor ours = beside(first, last);
    const at::Tensor theirs = at::cat({first, last.expand({7, 5, 4})}, 2);
    EXPECT_TRUE(at::equal(ours, theirs));
    const auto a = torch::autograd::grad({(ours * by).sum()}, {first, last});
    const auto b = torch::autograd::grad({(theirs * by).sum()}, {first, last});
    EXPECT_TRUE(at::equal(a[0], b[0]));
    EXPECT_TRUE(at::allclose(a[1], b[1], 1e-6, 1e-6));
  }
}

// 256 and 255 times 1: in bf16 a sum from head to head would stay at 256.
TEST(Beside, TheGradientOfASharedPartIsSummedWide) {
  const at::Tensor first = leaf({1, 256, 1}, at::kBFloat16), last = leaf({1, 1, 1}, at::kBFloat16);
  at::Tensor by = at::randn({1, 256, 2}).fill_(1.0);
  by.select(1, 0).fill_(256.0);
  const auto grads =
      torch::autograd::grad({beside(first, last)}, {first, last}, {by.to(at::kBFloat16)});
  EXPECT_EQ(grads[1].item<float>(), 512.0f);  // 511, rounded once
}

TEST(Beside, OtherShapesAreRefused) {
  EXPECT_THROW(beside(leaf({7, 5, 3}), leaf({7, 2, 4})), ModelError);
  EXPECT_THROW(beside(leaf({7, 5, 3}), leaf({6, 5, 4})), ModelError);
  EXPECT_THROW(beside(leaf({7, 5, 3}), leaf({7, 5, 4}, at::kDouble)), ModelError);
}

TEST(ProductsByHead, EqualSumsInF64) {
  for (const Kernels kind : {Kernels::kFused, Kernels::kComposite}) {
    set_kernels(kind);
    for (const int64_t n : {1, 3, 70}) {
      // Parts of wider tensors, as queries and the matrix come.
      const at::Tensor x = at::randn({n, 5, 20}).narrow(2, 3, 16),
                       w = at::randn({5, 30, 24}).narrow(1, 6, 16),
                       turned = at::randn({5, 30, 16}).narrow(1, 2, 11);
      const auto wide = [](const at::Tensor& t) { return t.to(at::kDouble); };
      const at::Tensor plain = at::einsum("nqi,qio->nqo", {wide(x), wide(w)}),
                       other = at::einsum("nqi,qoi->nqo", {wide(x), wide(turned)});
      EXPECT_LT((products_by_head(x, w) - plain).abs().max().item<double>(), 2e-5);
      EXPECT_LT((turned_products_by_head(x, turned) - other).abs().max().item<double>(), 2e-5);
    }
  }
  set_kernels(Kernels::kFused);
  EXPECT_THROW(products_by_head(at::randn({2, 5, 3}), at::randn({5, 4, 3})), ModelError);
  EXPECT_THROW(turned_products_by_head(at::randn({2, 5, 3}), at::randn({4, 4, 3})), ModelError);
}

}  // namespace head_parts_test
}  // namespace danlu::ops
