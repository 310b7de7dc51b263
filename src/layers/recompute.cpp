#include "layers/recompute.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include "ops/backend.h"

namespace danlu::layers {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct SavedBody : torch::CustomClassHolder {
  Body body;
  variable_list parameters;
};

class Rerun : public torch::autograd::Function<Rerun> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const c10::intrusive_ptr<SavedBody>& saved,
                            const at::TensorList inputs, const at::TensorList) {
    ctx->save_for_backward(inputs.vec());
    ctx->saved_data["body"] = at::IValue::make_capsule(saved);
    return saved->body(inputs.vec());
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto holder = ctx->saved_data["body"].toCapsule();
    const auto& saved = static_cast<const SavedBody&>(*holder);
    variable_list inputs, wanted;
    std::vector<size_t> slot;
    const auto want = [&](const at::Tensor& tensor, size_t at) {
      if (!tensor.requires_grad()) return;
      wanted.push_back(tensor);
      slot.push_back(at);
    };
    for (const at::Tensor& input : ctx->get_saved_variables()) {
      inputs.push_back(input.detach());
      if (input.requires_grad()) inputs.back().requires_grad_(true);
      want(inputs.back(), 1 + inputs.size() - 1);
    }
    for (size_t i = 0; i < saved.parameters.size(); ++i)
      want(saved.parameters[i], 1 + inputs.size() + i);
    variable_list result(1 + inputs.size() + saved.parameters.size());
    const at::AutoGradMode recording(true);
    const at::Tensor output = saved.body(inputs);
    const variable_list found =
        torch::autograd::grad({output}, wanted, {grads[0]}, /*retain_graph=*/false,
                              /*create_graph=*/false, /*allow_unused=*/true);
    for (size_t i = 0; i < found.size(); ++i) result[slot[i]] = found[i];
    return result;
  }
};

}  // namespace

at::Tensor recomputed(const Body& body, const std::vector<at::Tensor>& inputs,
                      const std::vector<at::Tensor>& parameters) {
  if (!at::GradMode::is_enabled()) return body(inputs);
  auto saved = c10::make_intrusive<SavedBody>();
  saved->body = body;
  saved->parameters = parameters;
  return Rerun::apply(saved, at::TensorList(inputs), at::TensorList(parameters));
}

at::Tensor keeping_inputs(const Body& body, const std::vector<at::Tensor>& inputs,
                          const std::vector<at::Tensor>& parameters) {
  return ops::fused_for(ops::Work::kRows, inputs[0]) ? body(inputs)
                                                     : recomputed(body, inputs, parameters);
}

}  // namespace danlu::layers
