// Work without autograd in ATen's operators, for any device that ATen computes on.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>
#include <ATen/ops/norm.h>

#include "device/dtype.h"
#include "ops/backend.h"

namespace danlu::ops {
namespace composite_detail {

RotaryTable rotary_table(const at::Tensor& positions_N, const at::Tensor& inv_freq,
                         double attention_factor) {
  const at::Tensor angle_NE = positions_N.to(at::kFloat).unsqueeze(1) * inv_freq;
  return {angle_NE.cos().mul_(attention_factor), angle_NE.sin().mul_(attention_factor)};
}

void add_into(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b) {
  at::Tensor sum = out;
  at::add_out(sum, a, b);
}

void add_to(const at::Tensor& sum, const at::Tensor& x) { at::Tensor(sum).add_(x); }

at::Tensor add_bias(const at::Tensor& x_NO, const at::Tensor& bias_O) { return x_NO + bias_O; }

at::Tensor scaled(const at::Tensor& x, double factor) { return x * factor; }

at::Tensor take_rows(const at::Tensor& x_NH, const at::Tensor& index_n) {
  return x_NH.index_select(0, index_n);
}

void add_rows(const at::Tensor& sum_NH, const at::Tensor& index_n, const at::Tensor& rows_nH) {
  at::Tensor(sum_NH).index_add_(0, index_n, rows_nH.to(sum_NH.scalar_type()));
}

at::Tensor column_sums(const at::Tensor& x_NO) {
  return x_NO.sum(0, false, device::wide_type(x_NO.scalar_type()));
}

at::Tensor attention_delta(const at::Tensor& out_grad_NQD, const at::Tensor& out_NQD) {
  const at::ScalarType wide = device::wide_type(out_grad_NQD.scalar_type());
  return (out_grad_NQD.to(wide) * out_NQD).sum(-1).t().contiguous();
}

constexpr double kShortestRow = 1e-12;

NormHeadResult norm_head(const at::Tensor& weight_VH) {
  const at::Tensor wide_VH = weight_VH.to(device::wide_type(weight_VH.scalar_type()));
  const at::Tensor length_V1 = at::norm(wide_VH, 2, {1}, true).clamp_min(kShortestRow);
  return {(wide_VH / length_V1).to(weight_VH.scalar_type()), length_V1};
}

/// What lies along a row changes its length alone, which is one whatever it was.
at::Tensor norm_head_backward(const at::Tensor& weight_VH, const at::Tensor& length_V1,
                              const at::Tensor& d_y_VH) {
  const at::Tensor wide_VH = weight_VH.to(length_V1.scalar_type());
  const at::Tensor grad_VH = d_y_VH.to(length_V1.scalar_type());
  const at::Tensor along_V1 = (grad_VH * wide_VH)
                                  .sum(1, true)
                                  .div_(length_V1.square())
                                  .masked_fill_(length_V1 <= kShortestRow, 0);
  return (grad_VH - wide_VH * along_V1).div_(length_V1);
}

Backend filled() {
  Backend table;
  table.rotary_table = &rotary_table;
  table.add_into = &add_into;
  table.add_to = &add_to;
  table.add_bias = &add_bias;
  table.scaled = &scaled;
  table.take_rows = &take_rows;
  table.add_rows = &add_rows;
  table.column_sums = &column_sums;
  table.attention_delta = &attention_delta;
  table.norm_head = &norm_head;
  table.norm_head_backward = &norm_head_backward;
  table.adamw_update = &oracle::adamw_update;
  table.sums_of_squares = &oracle::sums_of_squares;
  table.all_finite = &oracle::all_finite;
  return table;
}

}  // namespace composite_detail

const Backend& composite_backend() {
  static const Backend table = composite_detail::filled();
  return table;
}

}  // namespace danlu::ops
