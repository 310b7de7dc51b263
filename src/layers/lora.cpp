#include "layers/lora.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>

#include <algorithm>
#include <vector>

#include "ops/dora.h"
#include "ops/dropout.h"
#include "ops/linear.h"
#include "ops/pointwise.h"

namespace danlu::layers {
namespace {

/// Rows of a quantised weight that are dense at a time.
constexpr int64_t kRowsAtATime = 256;

at::Tensor own_squares(const at::Tensor& weight_OI, const LoraAdapter& adapter,
                       const ops::QuantizedPtr& quantized) {
  const at::Tensor &b_OR = adapter.b_OR.tensor, &a_RI = adapter.a_RI.tensor;
  if (!quantized) return ops::adapted_row_squares(weight_OI, b_OR, a_RI, adapter.scale);
  std::vector<at::Tensor> parts;
  for (int64_t row = 0; row < quantized->rows(); row += kRowsAtATime) {
    const int64_t count = std::min(kRowsAtATime, quantized->rows() - row);
    parts.push_back(ops::adapted_row_squares(
        quantized->dense_rows(row, count).to(b_OR.device(), b_OR.scalar_type()),
        b_OR.narrow(0, row, count), a_RI, adapter.scale));
  }
  return parts.size() == 1 ? parts.front() : at::cat(parts);
}

at::Tensor squares_of(const at::Tensor& weight_OI, const LoraAdapter& adapter,
                      const ops::QuantizedPtr& quantized) {
  if (adapter.fixed_squares_O.defined()) return adapter.fixed_squares_O;
  at::Tensor squares_O = own_squares(weight_OI, adapter, quantized);
  adapter.columns->all_reduce_sum(squares_O);
  return squares_O;
}

at::Tensor low_rank_product(const at::Tensor& input_NI, const LoraAdapter& adapter) {
  const at::Tensor low_NR =
      ops::linear(input_NI, adapter.a_RI.tensor, {}, {adapter.a_RI.main_grad});
  return ops::scaled(ops::linear(low_NR, adapter.b_OR.tensor, {}, {adapter.b_OR.main_grad}),
                     adapter.scale);
}

at::Tensor base_product(const at::Tensor& x_NI, const AdaptedBase& base, bool adds_bias) {
  const at::Tensor bias_O = adds_bias ? base.bias_O : at::Tensor();
  return base.quantized ? ops::quantized_linear(x_NI, *base.quantized, bias_O)
                        : ops::linear(x_NI, base.weight_OI, bias_O,
                                      {{}, adds_bias ? base.bias_grad : nullptr});
}

/// DoRA's step: rows of the weight at their magnitudes.
at::Tensor at_magnitude(const at::Tensor& y_NO, bool change, const at::Tensor& weight_OI,
                        const LoraAdapter& adapter, const ops::QuantizedPtr& quantized) {
  at::Tensor squares_O;
  {
    const at::NoGradGuard constant;
    squares_O = squares_of(weight_OI, adapter, quantized);
  }
  return ops::stretched(y_NO, adapter.magnitude_O.tensor, squares_O, change,
                        adapter.magnitude_O.main_grad);
}

}  // namespace

const LoraAdapter* AdapterSet::find(const Linear& linear) const {
  const auto found = of.find(&linear);
  return found == of.end() ? nullptr : &found->second;
}

void fix_row_lengths(const at::Tensor& weight_OI, LoraAdapter& adapter,
                     const ops::QuantizedPtr& quantized) {
  const at::NoGradGuard constant;
  adapter.fixed_squares_O = at::Tensor();
  adapter.fixed_squares_O = squares_of(weight_OI, adapter, quantized);
}

at::Tensor with_adapter(const at::Tensor& base_NO, const at::Tensor& x_NI,
                        const at::Tensor& weight_OI, const LoraAdapter& adapter,
                        const ops::QuantizedPtr& quantized) {
  const at::Tensor sum_NO = ops::add(base_NO, low_rank_product(x_NI, adapter));
  return adapter.magnitude_O.defined()
             ? at_magnitude(sum_NO, /*change=*/false, weight_OI, adapter, quantized)
             : sum_NO;
}

at::Tensor row_lengths(const at::Tensor& weight_OI, const LoraAdapter& adapter,
                       const ops::QuantizedPtr& quantized) {
  // Once for a model, a number for each row: on the host.
  return squares_of(weight_OI, adapter, quantized).cpu().sqrt().to(weight_OI.device());
}

at::Tensor adapted_linear(const at::Tensor& x_NI, const AdaptedBase& base,
                          const LoraAdapter& adapter, const at::Tensor& dropout_keys_N) {
  const bool drops = dropout_keys_N.defined() && adapter.dropout > 0;
  const auto x = ops::shared_by(2, x_NI);
  // Products with quantised weights keep no gradient of a bias.
  const bool is_late = adapter.magnitude_O.defined() || (base.quantized && base.bias_grad);
  const auto finished = [&](const at::Tensor& y_NO) {
    return is_late && base.bias_O.defined() ? ops::add_bias(y_NO, base.bias_O, base.bias_grad)
                                            : y_NO;
  };
  const at::Tensor base_NO = base_product(x[0], base, /*adds_bias=*/!is_late);
  if (!drops) return finished(with_adapter(base_NO, x[1], base.weight_OI, adapter, base.quantized));
  const at::Tensor input_NI = ops::dropout(x[1], adapter.dropout, dropout_keys_N,
                                           adapter.dropout_salt, adapter.first_column);
  const auto input = ops::shared_by(2, input_NI);
  const at::Tensor low_NO = low_rank_product(input[0], adapter);
  if (!adapter.magnitude_O.defined()) return finished(ops::add(base_NO, low_NO));
  const auto at_length = [&](const at::Tensor& y_NO, bool change) {
    return at_magnitude(y_NO, change, base.weight_OI, adapter, base.quantized);
  };
  // Only the change that the adapter makes sees dropped inputs; the base output stays whole.
  const at::Tensor change_NO = at_length(base_product(input[1], base, /*adds_bias=*/false), true);
  return finished(ops::add(ops::add(base_NO, change_NO), at_length(low_NO, false)));
}

at::Tensor adapted_weight(const at::Tensor& weight_OI, const LoraAdapter& adapter) {
  const at::NoGradGuard no_grad;
  const at::Tensor a_IR = adapter.a_RI.tensor.t().contiguous();
  const at::Tensor sum_OI =
      ops::add(weight_OI, ops::scaled(ops::linear(adapter.b_OR.tensor, a_IR), adapter.scale));
  if (!adapter.magnitude_O.defined()) return sum_OI;
  const at::Tensor stretched_IO =
      ops::stretched(sum_OI.t().contiguous(), adapter.magnitude_O.tensor,
                     squares_of(weight_OI, adapter, {}), /*change=*/false, {});
  return stretched_IO.t().contiguous();
}

void LoraAdapter::visit(Visitor& visitor) {
  visitor.parameter(a_RI);
  visitor.parameter(b_OR);
  visitor.parameter(magnitude_O);
}

}  // namespace danlu::layers
