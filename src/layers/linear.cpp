#include "layers/linear.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "base/error.h"
#include "layers/linear_inputs.h"
#include "ops/linear.h"
#include "ops/pointwise.h"

namespace danlu::layers {

const LoraAdapter* Linear::adapter_in(const AdapterRun& run) const {
  if (run.adapter) return run.adapter->find(*this);
  return adapter ? &*adapter : nullptr;
}

bool Linear::is_adapted(const Pass& pass) const {
  if (!pass.adapters) return false;
  if (pass.adapter_runs.empty()) return adapter.has_value();
  return std::any_of(pass.adapter_runs.begin(), pass.adapter_runs.end(),
                     [&](const AdapterRun& run) { return adapter_in(run) != nullptr; });
}

const LoraAdapter* Linear::adapter_of_all(const Pass& pass) const {
  if (!pass.adapters || pass.adapter_runs.size() > 1) return nullptr;
  return adapter_in(pass.adapter_runs.empty() ? AdapterRun{} : pass.adapter_runs.front());
}

at::Tensor Linear::product(const at::Tensor& x_NI, const Pass& pass, const Parameter& added) const {
  if (const LoraAdapter* const of_all = adapter_of_all(pass)) {
    return adapted_linear(x_NI, {weight.tensor, weight.quantized, added.tensor, added.main_grad},
                          *of_all, pass.dropout_keys_N);
  }
  const bool is_late =
      std::any_of(pass.adapter_runs.begin(), pass.adapter_runs.end(), [&](const AdapterRun& run) {
        const LoraAdapter* const of_run = adapter_in(run);
        return of_run && of_run->magnitude_O.defined();
      });
  const at::Tensor bias_O = is_late ? at::Tensor() : added.tensor;
  const at::Tensor y_NO = weight.quantized ? ops::quantized_linear(x_NI, *weight.quantized, bias_O)
                                           : ops::linear(x_NI, weight.tensor, bias_O,
                                                         {weight.main_grad, added.main_grad});
  if (is_adapted(pass)) adapt_rows(y_NO, x_NI, *this, pass.adapter_runs);
  return is_late && added.defined() ? ops::add_bias(y_NO, added.tensor, added.main_grad) : y_NO;
}

at::Tensor Linear::forward(const at::Tensor& x_NI, const Pass& pass) const {
  tell_input(*this, x_NI);
  if (is_adapted(pass)) return product(x_NI, pass, bias);
  if (weight.quantized) return ops::quantized_linear(x_NI, *weight.quantized, bias.tensor);
  return ops::linear(x_NI, weight.tensor, bias.tensor, {weight.main_grad, bias.main_grad});
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
    for (const Linear* linear : linears) tell_input(*linear, x_NI);
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
  return region.is_alone() ? forward(x_NI, pass) : product(x_NI, pass, Parameter());
}

at::Tensor Linear::whole_weight(const Pass& pass) const {
  const at::NoGradGuard no_grad;
  const at::Tensor dense_OI =
      weight.quantized ? weight.quantized->dense().to(weight.tensor.scalar_type()) : weight.tensor;
  const LoraAdapter* const of_all = adapter_of_all(pass);
  if (!of_all && is_adapted(pass))
    throw InternalError("[lora] one weight for rows of different adapters: '" + path + "'");
  return of_all ? adapted_weight(dense_OI, *of_all) : dense_OI;
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
