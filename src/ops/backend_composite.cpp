// Work without autograd in ATen's operators, for any device that ATen computes on.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/index_copy.h>
#include <ATen/ops/index_fill.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/norm.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <limits>

#include "device/dtype.h"
#include "ops/backend.h"
#include "ops/backend_activations.h"
#include "ops/backend_divergence.h"
#include "ops/pointwise.h"

namespace danlu::ops {
namespace composite {

RotaryTable rotary_table(const at::Tensor& positions_N, const at::Tensor& inv_freq,
                         double attention_factor) {
  const at::Tensor angle_NE = positions_N.to(at::kFloat).unsqueeze(1) * inv_freq;
  return {angle_NE.cos().mul_(attention_factor), angle_NE.sin().mul_(attention_factor)};
}

at::Tensor largest_of_share(const at::Tensor& logits_Cv) {
  const double none = -std::numeric_limits<double>::infinity();
  return logits_Cv.size(1) > 0 ? logits_Cv.amax(1, true)
                               : at::full({logits_Cv.size(0), 1}, none, logits_Cv.options());
}

struct LocalTargets {
  at::Tensor here_C1, column_C1;
};
LocalTargets local_targets(const SharedChunk& chunk) {
  const int64_t rows = chunk.logits_Cv.size(1);
  const at::Tensor local_C1 = (chunk.targets_C - chunk.first_row).unsqueeze(1);
  return {(local_C1 >= 0).logical_and(local_C1 < rows),
          local_C1.clamp(0, std::max<int64_t>(rows - 1, 0))};
}

at::Tensor sums_of_share(const SharedChunk& chunk, const at::Tensor& largest_C1) {
  at::Tensor logits_Cv = chunk.logits_Cv;
  const auto [here_C1, column_C1] = local_targets(chunk);
  const at::Tensor zeros_C1 = at::zeros_like(largest_C1);
  const at::Tensor target_C1 =
      logits_Cv.size(1) > 0 ? logits_Cv.gather(1, column_C1).where(here_C1, zeros_C1) : zeros_C1;
  logits_Cv.sub_(largest_C1).exp_();
  return at::cat({logits_Cv.sum(1, true), target_C1}, 1).contiguous();
}

at::Tensor place_of_largest(const at::Tensor& own_C1, const at::Tensor& largest_C1,
                            int64_t first_row) {
  return at::full_like(own_C1, -static_cast<double>(first_row))
      .masked_fill(own_C1 != largest_C1, -std::numeric_limits<double>::infinity());
}

void loss_of_share(const SharedLoss& loss) {
  at::Tensor logits_Cv = loss.chunk.logits_Cv;
  const at::Tensor total_C1 = loss.sums_C2.narrow(1, 0, 1),
                   target_C1 = loss.sums_C2.narrow(1, 1, 1), &largest_C1 = loss.largest_C1;
  at::Tensor sum = (total_C1.log() + largest_C1 - target_C1).sum();
  if (loss.z_weight > 0) sum = sum + largest_C1.square().sum() * loss.z_weight;
  at::Tensor(loss.sum).add_(sum);
  at::Tensor(loss.correct).add_((target_C1 >= largest_C1).sum());
  if (!loss.make_grad || logits_Cv.size(1) == 0) return;
  const at::ScalarType type = logits_Cv.scalar_type();
  const auto [here_C1, column_C1] = local_targets(loss.chunk);
  const at::Tensor at_C1 = loss.z_weight > 0 ? logits_Cv.argmax(1, true) : at::Tensor();
  logits_Cv.div_(total_C1);
  logits_Cv.scatter_add_(1, column_C1, here_C1.to(type).neg());
  if (loss.z_weight > 0) {
    const at::Tensor is_here_C1 =
        (loss.first_C1 == -static_cast<double>(loss.chunk.first_row)).to(type);
    logits_Cv.scatter_add_(1, at_C1, largest_C1 * is_here_C1 * (2 * loss.z_weight));
  }
  if (loss.grad_scale != 1.0) logits_Cv.mul_(loss.grad_scale);
}

void merge(const PartialAttention& into, const PartialAttention& more) {
  const at::Tensor lse_QN = at::logaddexp(into.lse_QN, more.lse_QN);
  const at::Tensor known_QN = lse_QN.masked_fill(lse_QN.isinf(), 0);
  const auto share = [&](const at::Tensor& part_QN) {
    return at::exp(part_QN - known_QN).t().unsqueeze(-1);
  };
  at::Tensor(into.out_NQD).mul_(share(into.lse_QN)).addcmul_(more.out_NQD, share(more.lse_QN));
  into.lse_QN.copy_(lse_QN);
}

void larger_into(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b) {
  at::Tensor larger = out;
  at::maximum_out(larger, a, b);
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

at::Tensor scale_rows(const at::Tensor& x_NH, const at::Tensor& factor_N) {
  const at::Tensor factor_N1 = factor_N.reshape({-1, 1});
  return (x_NH.to(device::wide_type(x_NH.scalar_type())) * factor_N1).to(x_NH.scalar_type());
}

at::Tensor row_dots(const at::Tensor& a_NH, const at::Tensor& b_NH) {
  return (a_NH.to(device::wide_type(a_NH.scalar_type())) * b_NH).sum(1);
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

at::Tensor adapted_row_squares(const at::Tensor& weight_OI, const at::Tensor& b_OR,
                               const at::Tensor& a_RI, double scale) {
  const at::ScalarType wide = device::wide_type(weight_OI.scalar_type());
  const at::Tensor sum_OI = weight_OI.to(wide) + at::mm(b_OR.to(wide), a_RI.to(wide)) * scale;
  return at::norm(sum_OI, 2, {1}).square_();  // one pass, where squares and their sum are two
}

at::Tensor lengths_of(const at::Tensor& squares_O) {
  const at::Tensor length_O = squares_O.sqrt();
  return length_O.masked_fill(length_O == 0, 1);
}

/// Records a gradient through the magnitude where that wants one.
at::Tensor stretch_factor(const at::Tensor& magnitude_O, const at::Tensor& squares_O, bool change,
                          at::ScalarType type) {
  const at::Tensor factor_O =
      (magnitude_O.to(squares_O.scalar_type()) / lengths_of(squares_O)).to(type);
  return change ? factor_O - 1 : factor_O;
}

at::Tensor scale_columns(const at::Tensor& x_NO, const at::Tensor& factor_O) {
  return x_NO * factor_O;
}

at::Tensor stretch_grad(const at::Tensor& d_stretched_NO, const at::Tensor& y_NO,
                        const at::Tensor& squares_O) {
  const at::Tensor wide_NO = d_stretched_NO.to(squares_O.scalar_type(), false, /*copy=*/true);
  return ops::column_sums(wide_NO.mul_(y_NO)) / lengths_of(squares_O);
}

/// Widened, since libtorch 1.13 has none of f16 on the CPU.
at::Tensor sigmoid(const at::Tensor& x) {
  return at::sigmoid(x.to(device::wide_type(x.scalar_type()))).to(x.scalar_type());
}

at::Tensor sigmoid_backward(const at::Tensor& grad, const at::Tensor& y) {
  return grad * (y * (1 - y));
}

LayerNormResult layer_norm(const at::Tensor& x_ND, const at::Tensor& weight_D,
                           const at::Tensor& bias_D, double eps) {
  const at::ScalarType wide = device::wide_type(x_ND.scalar_type());
  const auto [y_ND, mean_N1, rstd_N1] = at::native_layer_norm(
      x_ND.to(wide), {x_ND.size(-1)}, weight_D.to(wide), bias_D.to(wide), eps);
  return {y_ND.to(x_ND.scalar_type()), mean_N1, rstd_N1};
}

LayerNormGrads layer_norm_backward(const at::Tensor& x_ND, const at::Tensor& weight_D,
                                   const at::Tensor& bias_D, const LayerNormResult& kept,
                                   const at::Tensor& dy_ND, const LayerNormWants& wants) {
  const at::ScalarType wide = device::wide_type(x_ND.scalar_type());
  const auto [d_x, d_weight, d_bias] = at::native_layer_norm_backward(
      dy_ND.to(wide), x_ND.to(wide), {x_ND.size(-1)}, kept.mean_N1, kept.rstd_N1, weight_D.to(wide),
      bias_D.to(wide), {wants.x, wants.weight, wants.bias});
  return {wants.x ? d_x.to(x_ND.scalar_type()) : at::Tensor(), d_weight, d_bias};
}

at::Tensor capped(const at::Tensor& x, double cap) {
  const at::Tensor wide = x.to(device::wide_type(x.scalar_type()));
  return (at::tanh(wide / cap) * cap).to(x.scalar_type());
}

at::Tensor through_cap(const at::Tensor& d_y, const at::Tensor& y, double cap) {
  const at::Tensor wide = y.to(device::wide_type(y.scalar_type()));
  return d_y * (1 - (wide / cap).square());
}

at::Tensor with_rows(const at::Tensor& x_NH, const at::Tensor& index_n, const at::Tensor& rows_nH) {
  return rows_nH.defined() ? x_NH.index_copy(0, index_n, rows_nH) : x_NH.index_fill(0, index_n, 0);
}

Backend filled() {
  Backend table;
  table.divergence_sums = &composite_divergence_sums;
  table.divergence_grad = &composite_divergence_grad;
  table.activation = &composite_activation;
  table.activation_backward = &composite_activation_backward;
  table.gated_activation = &composite_gated_activation;
  table.gated_activation_backward = &composite_gated_activation_backward;
  table.layer_norm = &layer_norm;
  table.layer_norm_backward = &layer_norm_backward;
  table.capped = &capped;
  table.through_cap = &through_cap;
  table.with_rows = &with_rows;
  table.sigmoid = &sigmoid;
  table.sigmoid_backward = &sigmoid_backward;
  table.rotary_table = &rotary_table;
  table.add_into = &add_into;
  table.add_to = &add_to;
  table.add_bias = &add_bias;
  table.scaled = &scaled;
  table.take_rows = &take_rows;
  table.add_rows = &add_rows;
  table.column_sums = &column_sums;
  table.scale_rows = &scale_rows;
  table.row_dots = &row_dots;
  table.attention_delta = &attention_delta;
  table.largest_of_share = &largest_of_share;
  table.sums_of_share = &sums_of_share;
  table.place_of_largest = &place_of_largest;
  table.loss_of_share = &loss_of_share;
  table.merge = &merge;
  table.larger_into = &larger_into;
  table.adapted_row_squares = &adapted_row_squares;
  table.stretch_factor = &stretch_factor;
  table.scale_columns = &scale_columns;
  table.stretch_grad = &stretch_grad;
  table.norm_head = &norm_head;
  table.norm_head_backward = &norm_head_backward;
  table.adamw_update = &oracle::adamw_update;
  table.split_master = &oracle::split_master;
  table.join_master = &oracle::join_master;
  table.sums_of_squares = &oracle::sums_of_squares;
  table.all_finite = &oracle::all_finite;
  return table;
}

}  // namespace composite

const Backend& composite_backend() {
  static const Backend table = composite::filled();
  return table;
}

}  // namespace danlu::ops
