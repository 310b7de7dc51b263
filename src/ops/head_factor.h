// ops/head_factor.h: the products that logits are made of, a chunk of rows at a time. Internal to
// ops.
#pragma once
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <vector>

#include "device/dtype.h"
#include "ops/backend.h"
#include "ops/cross_entropy.h"
#include "ops/linear.h"
#include "ops/pointwise.h"
#include "ops/weight_grad.h"

namespace danlu::ops {

/// Rows whose logits exist at one time.
inline int64_t chunk_size(const HeadOptions& options, int64_t vocab) {
  if (options.chunk_tokens > 0) return options.chunk_tokens;
  return std::clamp<int64_t>((int64_t{16} << 20) / vocab, 256, 8192);
}

/// The gradient of x, from that of y = capped(x, cap).
inline at::Tensor through_cap(const at::Tensor& d_y, const at::Tensor& y, double cap) {
  return cap == 0 ? d_y : completed_backend(y.device().type()).through_cap(d_y, y, cap);
}

/// What is added to the logits of every row, and its gradient, summed over rows in f32 (f64 of
/// f64).
struct HeadBias {
  at::Tensor bias_V;  ///< of no element: there is none
  MainGradPtr main_grad;
  bool needs_grad;
  at::Tensor d_bias = {};

  HeadBias(const at::Tensor& bias, const MainGradPtr& into, bool recording)
      : bias_V(bias), main_grad(into), needs_grad(recording && bias.requires_grad()) {
    if (needs_grad)
      d_bias = at::zeros(bias.sizes(), bias.options().dtype(device::wide_type(bias.scalar_type())));
  }
  bool is_absent() const { return bias_V.numel() == 0; }
  at::Tensor added(const at::Tensor& logits_CV) const {
    return is_absent() ? logits_CV : add_bias(logits_CV, bias_V.to(logits_CV.scalar_type()));
  }
  void add_gradient(const at::Tensor& d_logits_CV) {
    if (needs_grad) add_to(d_bias, column_sums(d_logits_CV));
  }
  /// The gradient times `factor` for autograd, undefined where it goes to its place instead.
  at::Tensor finish(double factor = 1) const {
    if (!needs_grad) return {};
    const at::Tensor grad = factor == 1 ? d_bias : scaled(d_bias, factor);
    if (!takes_grad(main_grad)) return grad.to(bias_V.scalar_type());
    add_to(main_grad->sum, grad);
    return {};
  }
};

/// One of the products whose sum the logits are, and its gradients. The input holds the rows that
/// have targets only.
struct HeadFactor {
  at::Tensor input_nX, weight_VX;  ///< X = 0: the factor is absent
  const Backend* own;              ///< the table that multiplies; null: ATen does
  bool input_grad = false, weight_grad = false;
  at::Tensor d_input = {}, d_weight = {};
  MainGradPtr main_grad;  ///< null: the weight's gradient is autograd's
  at::Tensor
      main;  ///< its sum; undefined: there is none before the backward, d_weight waits for it

  HeadFactor(const at::Tensor& input, const at::Tensor& weight, const MainGradPtr& into,
             bool recording)
      : input_nX(input), weight_VX(weight), own(products_for(weight)), main_grad(into) {
    if (is_absent()) return;
    input_grad = recording && input_nX.requires_grad();
    weight_grad = recording && weight_VX.requires_grad();
    if (input_grad) d_input = at::empty_like(input_nX);
    if (weight_grad && has_place(main_grad)) main = main_grad->sum;
  }
  bool is_absent() const { return weight_VX.size(1) == 0; }
  bool needs_grad() const { return input_grad || weight_grad; }
  at::Tensor rows(int64_t begin, int64_t count) const { return input_nX.narrow(0, begin, count); }
  at::Tensor logits(int64_t begin, int64_t count, at::ScalarType type) const {
    return own ? own->product(rows(begin, count), weight_VX, {}, type)
               : matrix_product(rows(begin, count), weight_VX.t()).to(type);
  }
  /// sum_CV: f32 or wider.
  void add_logits(const at::Tensor& sum_CV, int64_t begin) const {
    const at::Tensor input_CX = rows(begin, sum_CV.size(0));
    own ? own->add_product(input_CX, weight_VX, sum_CV)
        : add_to(sum_CV, matrix_product(input_CX, weight_VX.t()));
  }
  at::Tensor input_gradient(const at::Tensor& d_logits_CV) const {
    return own ? own->input_grad(d_logits_CV, weight_VX, input_nX.scalar_type())
               : matrix_product(d_logits_CV, weight_VX);
  }

  /// Adds what rows begin … begin + C give; the weight's gradient is summed in f32 or wider.
  void add_gradients(const at::Tensor& d_logits_CV, int64_t begin) {
    const int64_t count = d_logits_CV.size(0);
    if (input_grad) d_input.narrow(0, begin, count).copy_(input_gradient(d_logits_CV));
    if (!weight_grad) return;
    const at::ScalarType wide = device::wide_type(input_nX.scalar_type());
    const at::Tensor input_CX = rows(begin, count);
    if (main.defined()) {
      add_weight_grad(d_logits_CV, input_CX, main, is_first(main_grad));
    } else if (!main_grad && count == input_nX.size(0)) {
      d_weight = own ? own->weight_grad(d_logits_CV, input_CX, weight_VX.scalar_type())
                     : matrix_product(d_logits_CV.t(), input_CX);
    } else {
      if (begin == 0) d_weight = at::zeros(weight_VX.sizes(), input_nX.options().dtype(wide));
      add_weight_grad(d_logits_CV, input_CX, d_weight);
    }
  }
  void finish() {
    if (!weight_grad || main.defined()) return;
    if (!d_weight.defined()) d_weight = at::zeros_like(weight_VX);
    if (!main_grad) d_weight = d_weight.to(weight_VX.scalar_type());
  }
};

/// Rows begin … begin + count of the logits that these make together, in the input's dtype, capped;
/// of their own memory.
inline at::Tensor narrow_head_logits(const HeadFactor& head, const HeadFactor& low,
                                     const HeadBias& bias, double softcap, int64_t begin,
                                     int64_t count) {
  const at::ScalarType dtype = head.input_nX.scalar_type(), wide = device::wide_type(dtype);
  const bool is_plain = low.is_absent() && bias.is_absent();
  at::Tensor logits_CV = head.logits(begin, count, is_plain ? dtype : wide);
  if (!low.is_absent()) low.add_logits(logits_CV, begin);
  return capped(bias.added(logits_CV).to(dtype), softcap);
}

/// The same in f32 or wider.
inline at::Tensor head_logits(const HeadFactor& head, const HeadFactor& low, const HeadBias& bias,
                              double softcap, int64_t begin, int64_t count) {
  return narrow_head_logits(head, low, bias, softcap, begin, count)
      .to(device::wide_type(head.input_nX.scalar_type()));
}

/// What a backward gives to autograd: gradients of the head's input and weight, of the addition's,
/// of the bias, and none for the call. saved: these five. d_logits(head, low, bias, begin, count):
/// the gradient [C, V] of the logits of C = count rows, in the input's dtype; at most `chunk` rows.
template <typename LogitGradient>
std::vector<at::Tensor> head_gradients(const std::vector<at::Tensor>& saved,
                                       const HeadOptions& options, const MainGradPtr& low_main,
                                       int64_t chunk, const LogitGradient& d_logits) {
  HeadFactor head(saved[0], saved[1], options.main_grad, true),
      low(saved[2], saved[3], low_main, true);
  HeadBias bias(saved[4], options.bias_main, true);
  const int64_t rows = saved[0].size(0);
  for (int64_t begin = 0; begin < rows; begin += chunk) {
    const at::Tensor d_logits_CV = d_logits(head, low, bias, begin, std::min(chunk, rows - begin));
    head.add_gradients(d_logits_CV, begin);
    low.add_gradients(d_logits_CV, begin);
    bias.add_gradient(d_logits_CV);
  }
  head.finish();
  low.finish();
  const auto of_weight = [](HeadFactor& factor) {
    if (!factor.weight_grad || factor.main.defined()) return at::Tensor();
    return factor.d_weight.to(factor.weight_VX.scalar_type());
  };
  return {head.d_input, of_weight(head), low.d_input, of_weight(low), bias.finish(), at::Tensor()};
}

}  // namespace danlu::ops
