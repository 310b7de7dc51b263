#include "models/nf4_weights.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <vector>

#include "device/dtype.h"
#include "device/late_memory.h"
#include "models/tensor_io.h"
#include "ops/nf4.h"
#include "weights/hf/nf4_tensors.h"

namespace danlu::models {
namespace {

std::vector<ops::Nf4Rect> rects_in_nf4(const Parameter& parameter) {
  std::vector<ops::Nf4Rect> rects;
  for (const parallel::HeldRect& held : parameter.rects)
    rects.push_back({held.rect.row, held.rect.rows, held.rect.col, held.rect.cols});
  return rects;
}

/// The form in which the parameter is to be held; empty: it stays dense.
std::optional<ops::Nf4Form> nf4_form_of(const CausalLM::Impl& model, const Parameter& parameter,
                                        const weights::TensorSource* source,
                                        const Quantisation& quantisation) {
  if (!parameter.defined() || parameter.rects.empty() || parameter.trainable ||
      !weights::takes_nf4(model.config, parameter.spec))
    return std::nullopt;
  const bool is_stored = source && source->find(parameter.name());
  const auto stored = is_stored ? source->nf4_form(parameter.name()) : std::nullopt;
  if (stored) {
    return ops::Nf4Form{stored->block, stored->doubly, device::scalar_type_of(stored->dtype)};
  }
  if (!quantisation.make_nf4) return std::nullopt;
  return ops::Nf4Form{kNf4Block, quantisation.make_nf4->doubly, model.dtype};
}

void put_nf4(Parameter& parameter, const Nf4Codes& codes) {
  const ops::Nf4Weight& weight = *ops::nf4_of(*parameter.quantized);
  device::give_memory(weight.bytes());
  const at::Tensor& to = weight.bytes();
  at::Tensor bytes = to.is_cpu() ? to : at::empty(to.sizes(), at::TensorOptions(at::kByte));
  ops::cut_nf4(codes, weight.layout(), bytes.data_ptr<uint8_t>());
  if (!to.is_cpu()) weight.bytes().copy_(bytes);
}

}  // namespace

void choose_nf4(CausalLM::Impl& model, const weights::TensorSource* source,
                const Quantisation& quantisation) {
  if (!quantisation.keeps_nf4 && !quantisation.make_nf4) return;
  for (Parameter* parameter : model.base()) {
    const auto form = nf4_form_of(model, *parameter, source, quantisation);
    if (!form) continue;
    const std::vector<int64_t>& shape = parameter->spec.shape;
    auto layout =
        std::make_shared<const ops::Nf4Layout>(*form, shape[0], shape[1], rects_in_nf4(*parameter));
    const at::Tensor bytes = device::tensor_without_memory(
        {layout->size_bytes()}, parameter->tensor.options().dtype(at::kByte).requires_grad(false));
    parameter->quantized =
        std::make_shared<ops::Nf4Weight>(ops::Nf4Matrix{std::move(layout), bytes});
  }
}

bool fill_nf4(Parameter& parameter, const at::Tensor& whole_OI) {
  const ops::Nf4Weight* const weight =
      parameter.quantized ? ops::nf4_of(*parameter.quantized) : nullptr;
  if (!weight) return false;
  const ops::Nf4Form& form = weight->layout().form();
  put_nf4(parameter, ops::quantized_nf4(whole_OI.to(form.type), form));
  return true;
}

bool fill_nf4(Parameter& parameter, const weights::TensorSource& source) {
  const at::NoGradGuard no_grad;
  const ops::Nf4Weight* const weight =
      parameter.quantized ? ops::nf4_of(*parameter.quantized) : nullptr;
  if (!weight) return false;
  if (source.nf4_form(parameter.name())) {
    put_nf4(parameter, source.read_nf4(parameter.name()));
    return true;
  }
  const Parameter whole = parallel::whole_parameter(
      parameter.name(), device::tensor_without_memory(
                            parameter.spec.shape, at::TensorOptions(weight->layout().form().type)));
  return fill_nf4(parameter, read_as(source, parameter.name(), whole));
}

}  // namespace danlu::models
