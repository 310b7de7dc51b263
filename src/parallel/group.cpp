#include "parallel/group.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/zeros.h>

#include "base/error.h"
#include "device/dtype.h"

namespace danlu::parallel {
namespace group_detail {

class AloneGroup : public Group {
 public:
  int64_t rank() const override { return 0; }
  int64_t size() const override { return 1; }

 private:
  void do_gather(const at::Tensor&, at::Tensor&) const override {}
  void do_exchange(const at::Tensor&, at::Tensor&) const override {}
  void do_broadcast(at::Tensor&, int64_t) const override {}
};

/// Blocks along `dim` become blocks along dimension 0, contiguous.
at::Tensor blocks_first(const at::Tensor& tensor, int64_t dim, int64_t blocks) {
  if (dim == 0) return tensor.contiguous();
  std::vector<int64_t> shape = tensor.sizes().vec();
  shape[static_cast<size_t>(dim)] /= blocks;
  shape.insert(shape.begin() + dim, blocks);
  return tensor.reshape(shape).movedim(dim, 0).contiguous();
}

at::ScalarType sum_type(const at::Tensor& tensor) {
  return tensor.is_floating_point() ? device::wide_type(tensor.scalar_type())
                                    : tensor.scalar_type();
}

/// The sum or maximum of the rows, in order.
at::Tensor reduced(const at::Tensor& rows_RN, bool sums) {
  at::Tensor total_N = rows_RN[0].to(sum_type(rows_RN), false, /*copy=*/true);
  for (int64_t r = 1; r < rows_RN.size(0); ++r) {
    if (sums) {
      total_N.add_(rows_RN[r]);
    } else {
      total_N = at::maximum(total_N, rows_RN[r].to(total_N.scalar_type()));
    }
  }
  return total_N;
}

}  // namespace group_detail

void Group::count(int64_t bytes) const {
  ++traffic_.calls;
  traffic_.bytes += bytes;
}

void Group::reduce(at::Tensor& tensor, Reduction how) const {
  if (is_alone()) return;
  const at::NoGradGuard no_grad;
  const bool sums = how == Reduction::kSum;
  const at::Tensor flat = tensor.detach().contiguous().view({-1});
  // A few numbers go to everybody at once; of more, each rank reduces its part for all.
  constexpr int64_t kFew = 64;
  const int64_t ranks = size(), part = (flat.numel() + ranks - 1) / ranks;
  if (flat.numel() <= kFew) {
    at::Tensor all = at::empty({ranks * flat.numel()}, flat.options());
    do_gather(flat, all);
    count((ranks - 1) * static_cast<int64_t>(flat.nbytes()));
    tensor.copy_(group_detail::reduced(all.view({ranks, -1}), sums).view(tensor.sizes()));
    return;
  }
  at::Tensor padded = flat.numel() == part * ranks
                          ? flat
                          : at::constant_pad_nd(flat, {0, part * ranks - flat.numel()});
  at::Tensor theirs = at::empty_like(padded);
  do_exchange(padded, theirs);
  const at::Tensor mine =
      group_detail::reduced(theirs.view({ranks, part}), sums).to(flat.scalar_type());
  do_gather(mine, theirs);
  count(2 * (ranks - 1) * static_cast<int64_t>(mine.nbytes()));
  tensor.copy_(theirs.narrow(0, 0, flat.numel()).view(tensor.sizes()));
}

void Group::all_reduce_sum(at::Tensor& tensor) const { reduce(tensor, Reduction::kSum); }
void Group::all_reduce_max(at::Tensor& tensor) const { reduce(tensor, Reduction::kMax); }

at::Tensor Group::all_gather(const at::Tensor& tensor, int64_t dim) const {
  if (is_alone()) return tensor;
  const at::NoGradGuard no_grad;
  const at::Tensor mine = tensor.detach().contiguous();
  std::vector<int64_t> shape = mine.sizes().vec();
  shape.insert(shape.begin(), size());
  at::Tensor all = at::empty(shape, mine.options());
  at::Tensor flat = all.view({-1});
  do_gather(mine.view({-1}), flat);
  count((size() - 1) * static_cast<int64_t>(mine.nbytes()));
  shape.erase(shape.begin());
  shape[static_cast<size_t>(dim)] *= size();
  return dim == 0 ? all.view(shape) : all.movedim(0, dim).reshape(shape);
}

at::Tensor Group::reduce_scatter_sum(const at::Tensor& tensor, int64_t dim) const {
  if (is_alone()) return tensor;
  if (tensor.size(dim) % size() != 0) {
    throw InternalError("[group] " + std::to_string(tensor.size(dim)) + " do not divide over " +
                        std::to_string(size()) + " ranks");
  }
  const at::NoGradGuard no_grad;
  const at::Tensor all = group_detail::blocks_first(tensor.detach(), dim, size()).view({-1});
  at::Tensor theirs = at::empty_like(all);
  do_exchange(all, theirs);
  count((size() - 1) * static_cast<int64_t>(all.nbytes()) / size());
  std::vector<int64_t> shape = tensor.sizes().vec();
  shape[static_cast<size_t>(dim)] /= size();
  return group_detail::reduced(theirs.view({size(), -1}), true)
      .to(tensor.scalar_type())
      .view(shape);
}

void Group::broadcast(at::Tensor& tensor, int64_t root) const {
  if (is_alone()) return;
  const at::NoGradGuard no_grad;
  at::Tensor flat = tensor.detach().contiguous().view({-1});
  do_broadcast(flat, root);
  count(rank() == root ? (size() - 1) * static_cast<int64_t>(flat.nbytes()) : 0);
  if (rank() != root && !flat.is_alias_of(tensor)) tensor.copy_(flat.view(tensor.sizes()));
}

void Group::barrier() const {
  if (is_alone()) return;
  at::Tensor nothing = at::zeros({1}, at::kLong);
  reduce(nothing, Reduction::kSum);
}

const Group& Group::alone() {
  static const group_detail::AloneGroup group;
  return group;
}

}  // namespace danlu::parallel
