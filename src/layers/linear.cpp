#include "layers/linear.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "ops/linear.h"
#include "ops/pointwise.h"

namespace danlu::layers {

at::Tensor Linear::product(const at::Tensor& x_NI, const Pass& pass) const {
  if (is_adapted(pass))
    return adapted_linear(x_NI, weight.tensor, *adapter, pass.dropout_keys_N, weight.quantized);
  if (weight.quantized) return ops::quantized_linear(x_NI, *weight.quantized);
  return ops::linear(x_NI, weight.tensor, {}, {weight.main_grad, {}});
}

at::Tensor Linear::forward(const at::Tensor& x_NI, const Pass& pass) const {
  if (!is_adapted(pass) && weight.quantized)
    return ops::quantized_linear(x_NI, *weight.quantized, bias.tensor);
  if (!is_adapted(pass))
    return ops::linear(x_NI, weight.tensor, bias.tensor, {weight.main_grad, bias.main_grad});
  const at::Tensor y_NO = product(x_NI, pass);
  return bias.defined() ? ops::add_bias(y_NO, bias.tensor, bias.main_grad) : y_NO;
}

std::vector<at::Tensor> forward_each(const std::vector<const Linear*>& linears,
                                     const at::Tensor& x_NI, const Pass& pass) {
  const auto all = [&](const auto& is) { return std::all_of(linears.begin(), linears.end(), is); };
  const bool is_plain = !at::GradMode::is_enabled() &&
                        all([&](const Linear* linear) { return !linear->is_adapted(pass); });
  if (is_plain && all([](const Linear* linear) { return linear->weight.quantized != nullptr; })) {
    std::vector<ops::QuantizedFactor> factors;
    for (const Linear* linear : linears)
      factors.push_back({*linear->weight.quantized, linear->bias.tensor});
    return ops::quantized_linears(x_NI, factors);
  }
  if (is_plain && all([](const Linear* linear) { return !linear->weight.quantized; })) {
    std::vector<ops::LinearFactor> factors;
    for (const Linear* linear : linears)
      factors.push_back({linear->weight.tensor, linear->bias.tensor});
    return ops::linears(x_NI, factors);
  }
  const auto x = ops::shared_by(static_cast<int64_t>(linears.size()), x_NI);
  std::vector<at::Tensor> results;
  for (size_t i = 0; i < linears.size(); ++i) results.push_back(linears[i]->forward(x[i], pass));
  return results;
}

at::Tensor Linear::partial(const at::Tensor& x_NI, const Pass& pass,
                           const parallel::Region& region) const {
  return region.is_alone() ? forward(x_NI, pass) : product(x_NI, pass);
}

at::Tensor Linear::whole_weight(const Pass& pass) const {
  const at::NoGradGuard no_grad;
  const at::Tensor dense_OI =
      weight.quantized ? weight.quantized->dense().to(weight.tensor.scalar_type()) : weight.tensor;
  return is_adapted(pass) ? adapted_weight(dense_OI, *adapter) : dense_OI;
}

at::Tensor Linear::leave(const at::Tensor& partial_NO, const parallel::Region& region) const {
  if (region.is_alone()) return partial_NO;
  const at::Tensor y_NO = region.leave(partial_NO);
  return bias.defined() ? ops::add_bias(y_NO, bias.tensor, bias.main_grad) : y_NO;
}

bool is_there(const Linear& linear) { return linear.defined(); }

void Visitor::linear(Linear& linear) {
  parameter(linear.weight);
  parameter(linear.bias);
  if (linear.adapter) linear.adapter->visit(*this);
}

}  // namespace danlu::layers
