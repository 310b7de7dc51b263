// What a step of the optimizer does.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "npu/arithmetic.h"
#include "npu/operators.h"
#include "npu/table.h"

namespace danlu::npu {
namespace {

constexpr int64_t kMostAtOnce = int64_t{32} << 20;  // elements: bounds what is held between

/// The halves of f32 numbers as int16, the lower one first.
View half_of(const at::Tensor& flat, int64_t which) {
  return View(flat, at::kShort, {flat.numel()}, {2}, which);
}
View as_short(const at::Tensor& flat) {
  return View(flat, at::kShort, flat.sizes(), flat.strides());
}

/// 1 where low is not below zero: where the upper half was not rounded up.
at::Tensor is_not_below(const at::Tensor& low) {
  const at::Tensor flag = fresh(low, low.sizes(), at::kBool);
  aclnn::ge_scalar(View(low), Number(int64_t{0}), View(flag));
  return cast(flag, at::kShort);
}

/// Merges neighbours of one rule, and cuts what is too much at once.
template <typename Body>
void each_range(const std::vector<ops::Chunk>& chunks, const Body& body) {
  for (size_t i = 0; i < chunks.size();) {
    ops::Range at = chunks[i].at;
    const size_t index = chunks[i++].index;
    for (; i < chunks.size() && chunks[i].index == index && chunks[i].at.begin == at.end; ++i)
      at.end = chunks[i].at.end;
    for (int64_t begin = at.begin; begin < at.end; begin += kMostAtOnce)
      body(index, begin, std::min(kMostAtOnce, at.end - begin));
  }
}

}  // namespace

void split_master(const at::Tensor& master, const at::Tensor& weight, const at::Tensor& low) {
  if (master.numel() == 0) return;
  aclnn::inplace_copy(View(low), half_of(master, 0));
  // The upper half and one more where low is below zero.
  const at::Tensor stays = is_not_below(low), upper = fresh(low);
  aclnn::add(half_of(master, 1), View(stays), Number(int64_t{-1}), View(upper));
  aclnn::adds(View(upper), Number(int64_t{1}), Number(int64_t{1}), as_short(weight));
  // Beside a NaN's bits nothing is kept, and one more may make a number of it.
  const at::Tensor is_finite = fresh(master, master.sizes(), at::kBool),
                   rounded = cast(master, at::kBFloat16), chosen = fresh(rounded),
                   kept = fresh(low);
  aclnn::is_finite(View(master), View(is_finite));
  aclnn::where(View(is_finite), View(weight), View(rounded), View(chosen));
  weight.copy_(chosen);
  aclnn::mul(View(low), View(cast(is_finite, at::kShort)), View(kept));
  low.copy_(kept);
}

at::Tensor join_master(const at::Tensor& weight, const at::Tensor& low) {
  const at::Tensor master = fresh(weight, weight.sizes(), at::kFloat);
  if (master.numel() == 0) return master;
  const at::Tensor upper = fresh(low);
  aclnn::add(as_short(weight), View(is_not_below(low)), Number(int64_t{1}), View(upper));
  const at::Tensor less = fresh(low);
  aclnn::adds(View(upper), Number(int64_t{-1}), Number(int64_t{1}), View(less));
  aclnn::inplace_copy(half_of(master, 0), View(low));
  aclnn::inplace_copy(half_of(master, 1), View(less));
  return master;
}

void adamw_update(const ops::AdamWState& state, const std::vector<ops::Chunk>& chunks,
                  std::span<const ops::AdamWScalars> scalars) {
  each_range(chunks, [&](size_t index, int64_t begin, int64_t count) {
    const ops::AdamWScalars& s = scalars[index];
    const auto part = [&](const at::Tensor& flat) { return flat.narrow(0, begin, count); };
    const bool is_split = state.low.defined();
    const at::Tensor first = part(state.exp_avg), second = part(state.exp_avg_sq),
                     master = is_split ? join_master(part(state.weight), part(state.low))
                                       : part(state.master);
    const at::Tensor grad = times(part(state.grad), s.grad_scale);
    multiply(first, s.beta1);
    add(first, grad, s.one_minus_beta1);
    multiply(second, s.beta2);
    add(second, times(grad, grad), s.one_minus_beta2);
    multiply(master, s.keep);
    const at::Tensor length = grad;  // its memory is free from here on
    aclnn::sqrt(View(second), View(length));
    multiply(length, s.inv_sqrt_bias2);
    aclnn::adds(View(length), Number(s.eps), Number(1.0), View(length));
    add(master, divided(first, length), -s.step_size);
    if (!state.weight.defined()) return;
    const at::Tensor weight = part(state.weight);
    if (weight.scalar_type() == at::kBFloat16) {
      split_master(master, weight,
                   is_split ? part(state.low) : fresh(master, master.sizes(), at::kShort));
    } else {
      weight.copy_(master);
    }
  });
}

namespace {

/// Sums of [k, size], level by level, so that few numbers are added to one.
at::Tensor summed(const at::Tensor& squares_KS) {
  constexpr int64_t kLevel = 256;
  const int64_t size = squares_KS.size(1);
  if (size <= kLevel || size % kLevel != 0) return sum_over(squares_KS, {1}, false);
  return summed(sum_over(squares_KS.view({squares_KS.size(0), size / kLevel, kLevel}), {2}, false));
}

}  // namespace

std::vector<double> sums_of_squares(const at::Tensor& values,
                                    const std::vector<ops::Chunk>& chunks) {
  const auto count = static_cast<int64_t>(chunks.size());
  const at::Tensor sums = fresh(values, {count}, at::kFloat);
  for (size_t i = 0; i < chunks.size();) {
    // Neighbours of one size are summed at once.
    const int64_t begin = chunks[i].at.begin, size = chunks[i].at.size();
    int64_t run = 1;
    for (; i + static_cast<size_t>(run) < chunks.size() && (run + 1) * size <= kMostAtOnce; ++run) {
      const ops::Range& next = chunks[i + static_cast<size_t>(run)].at;
      if (next.begin != begin + run * size || next.size() != size) break;
    }
    const at::Tensor part = values.narrow(0, begin, run * size).view({run, size});
    sums.narrow(0, static_cast<int64_t>(i), run).copy_(summed(times(part, part)));
    i += static_cast<size_t>(run);
  }
  const at::Tensor host = sums.to(at::kCPU);
  const float* const found = host.data_ptr<float>();
  return {found, found + count};
}

bool all_finite(const at::Tensor& x) {
  if (x.numel() == 0) return true;
  const at::Tensor is_finite = fresh(x, {x.numel()}, at::kBool), all = fresh(x, {1}, at::kBool);
  aclnn::is_finite(View(x.contiguous().view({x.numel()})), View(is_finite));
  aclnn::all(View(is_finite), Numbers{0}, true, View(all));
  return all.to(at::kCPU).data_ptr<bool>()[0];
}

}  // namespace danlu::npu
