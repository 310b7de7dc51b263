#include "optim/state_values.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "ops/optimizer.h"

namespace danlu::optim {
namespace {

/// Elements of a block: 4 MiB.
constexpr int64_t kBlock = int64_t{1} << 20;

}  // namespace

StateValues StateValues::narrow(int64_t begin, int64_t size) const {
  const at::Tensor values = values_.narrow(0, begin, size);
  return low_.defined() ? StateValues(values, low_.narrow(0, begin, size)) : StateValues(values);
}

at::Tensor StateValues::f32() const {
  return low_.defined() ? ops::join_master(values_, low_) : values_;
}

void StateValues::for_each_block(const std::function<void(const at::Tensor&)>& visit) const {
  int64_t at = 0;
  do {
    const int64_t some = std::min(kBlock, size() - at);
    visit(narrow(at, some).f32());
    at += some;
  } while (at < size());
}

bool StateValues::take(int64_t rows, int64_t cols,
                       const std::function<bool(int64_t, const at::Tensor&)>& give) const {
  if (!low_.defined()) return give(0, values_.view({rows, cols}));
  const int64_t at_once = std::max<int64_t>(1, kBlock / std::max<int64_t>(1, cols));
  int64_t row = 0;
  do {
    const int64_t some = std::min(at_once, rows - row);
    const at::Tensor to = at::empty({some, cols}, values_.options().dtype(at::kFloat));
    if (!give(row, to)) return false;
    const StateValues part = narrow(row * cols, some * cols);
    ops::split_master(to.view({-1}), part.values_, part.low_);
    row += some;
  } while (row < rows);
  return true;
}

}  // namespace danlu::optim
