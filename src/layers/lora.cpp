#include "layers/lora.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/norm.h>

#include "device/dtype.h"
#include "ops/dropout.h"
#include "ops/linear.h"
#include "ops/pointwise.h"

namespace danlu::layers {
namespace lora_detail {

at::Tensor sum_of(const at::Tensor& weight_OI, const LoraAdapter& adapter) {
  const at::ScalarType wide = device::wide_type(weight_OI.scalar_type());
  return weight_OI.to(wide) +
         at::mm(adapter.b_OR.tensor.to(wide), adapter.a_RI.tensor.to(wide)) * adapter.scale;
}

at::Tensor lengths_of(const at::Tensor& sum_OI, const LoraAdapter& adapter) {
  if (adapter.columns->is_alone()) return at::norm(sum_OI, 2, {1});
  at::Tensor squares_O = sum_OI.square().sum(1);
  adapter.columns->all_reduce_sum(squares_O);
  return squares_O.sqrt();
}

/// What stretches each row to its magnitude. A row of zeros has no direction: it stays as it is.
at::Tensor stretch_of(const at::Tensor& length_O, const LoraAdapter& adapter) {
  return adapter.magnitude_O.tensor.to(length_O.scalar_type()) /
         length_O.masked_fill(length_O == 0, 1);
}

}  // namespace lora_detail

at::Tensor row_lengths(const at::Tensor& weight_OI, const LoraAdapter& adapter) {
  return lora_detail::lengths_of(lora_detail::sum_of(weight_OI, adapter), adapter);
}

at::Tensor adapted_linear(const at::Tensor& x_NI, const at::Tensor& weight_OI,
                          const LoraAdapter& adapter, const at::Tensor& dropout_keys_N,
                          const ops::QuantizedPtr& quantized) {
  const bool drops = dropout_keys_N.defined() && adapter.dropout > 0;
  const auto x = ops::shared_by(2, x_NI);
  const at::Tensor base_NO =
      quantized ? ops::quantized_linear(x[0], *quantized) : ops::linear(x[0], weight_OI);
  const at::Tensor input_NI = drops ? ops::dropout(x[1], adapter.dropout, dropout_keys_N,
                                                   adapter.dropout_salt, adapter.first_column)
                                    : x[1];
  const at::Tensor low_NR =
      ops::linear(input_NI, adapter.a_RI.tensor, {}, {adapter.a_RI.main_grad});
  const at::Tensor low_NO = ops::scaled(
      ops::linear(low_NR, adapter.b_OR.tensor, {}, {adapter.b_OR.main_grad}), adapter.scale);
  if (!adapter.magnitude_O.defined()) return ops::add(base_NO, low_NO);
  at::Tensor length_O;
  {
    const at::NoGradGuard constant;
    length_O = row_lengths(weight_OI, adapter);
  }
  const at::Tensor stretch_O = lora_detail::stretch_of(length_O, adapter).to(x_NI.scalar_type());
  if (!drops) return (base_NO + low_NO) * stretch_O;
  // Only the change that the adapter makes sees dropped inputs; the base output stays whole.
  return base_NO + ops::linear(input_NI, weight_OI) * (stretch_O - 1) + low_NO * stretch_O;
}

}  // namespace danlu::layers
