#include "parallel/mesh.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "parallel/collectives.h"

namespace danlu::parallel {
namespace {

/// Two ranks that hold the same values: every sum doubles.
class TwinGroup : public Group {
 public:
  int64_t rank() const override { return 0; }
  int64_t size() const override { return 2; }
  void all_reduce_sum(at::Tensor& tensor) const override { tensor.mul_(2); }
  at::Tensor all_gather(const at::Tensor& tensor, int64_t dim) const override {
    return at::cat({tensor, tensor}, dim);
  }
  at::Tensor reduce_scatter_sum(const at::Tensor& tensor, int64_t dim) const override {
    return tensor.narrow(dim, 0, tensor.size(dim) / 2) * 2;
  }
  void broadcast(at::Tensor&, int64_t) const override {}
  void barrier() const override {}
};

TEST(Mesh, OfOneRankIsTheIdentity) {
  const Group& group = Mesh::single().group(Axis::kTensor);
  at::Tensor x = at::arange(6, at::kFloat).view({2, 3});
  const at::Tensor before = x.clone();
  group.all_reduce_sum(x);
  group.broadcast(x, 0);
  group.barrier();
  EXPECT_TRUE(at::equal(x, before));
  EXPECT_TRUE(at::equal(group.all_gather(x, 1), before));
  EXPECT_TRUE(at::equal(group.reduce_scatter_sum(x, 0), before));
  EXPECT_TRUE(copy_to(x, group).is_same(x));
  EXPECT_TRUE(sum_over(x, group).is_same(x));
  EXPECT_EQ(Mesh::single().size(), 1);
}

TEST(Mesh, SizeIsTheProductOfItsAxes) {
  const TwinGroup twins;
  const Group& alone = Group::alone();
  EXPECT_EQ(Mesh({&twins, &alone, &twins, &alone, &alone}).size(), 4);
}

TEST(Collectives, CopyToSumsInBackwardOnly) {
  const TwinGroup twins;
  const at::Tensor x = at::ones({3}).requires_grad_(true);
  const at::Tensor y = copy_to(x, twins);
  EXPECT_TRUE(at::equal(y, x));
  EXPECT_TRUE(at::equal(torch::autograd::grad({(y * 5).sum()}, {x})[0], at::full({3}, 10.0f)));
}

TEST(Collectives, SumOverSumsInForwardOnly) {
  const TwinGroup twins;
  const at::Tensor x = at::ones({3}).requires_grad_(true);
  const at::Tensor y = sum_over(x, twins);
  EXPECT_TRUE(at::equal(y, x * 2));
  EXPECT_TRUE(at::equal(torch::autograd::grad({(y * 5).sum()}, {x})[0], at::full({3}, 5.0f)));
  EXPECT_TRUE(at::equal(x, at::ones({3})));
}

}  // namespace
}  // namespace danlu::parallel
