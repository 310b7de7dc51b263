#include "models/calibrate.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <map>
#include <memory>

#include "arch/turned_matrices.h"
#include "base/error.h"
#include "layers/linear.h"
#include "layers/linear_inputs.h"
#include "layers/offload.h"
#include "models/causal_lm_impl.h"

namespace danlu::models {
namespace {

/// Some sequences as one pass, and what they are before the layer that comes next.
struct CalibrationBatch {
  std::shared_ptr<const layers::Pass> pass;
  at::Tensor hidden_NH;
};

ForwardInput input_of(const Calibration& calibration, size_t first, size_t last) {
  std::vector<at::Tensor> ids, positions;
  ForwardInput input;
  input.segments.q_starts = {0};
  for (size_t i = first; i < last; ++i) {
    const std::vector<int64_t>& text = calibration.texts[i];
    const auto count = static_cast<int64_t>(text.size());
    ids.push_back(at::from_blob(const_cast<int64_t*>(text.data()), {count}, at::kLong));
    positions.push_back(at::arange(count, at::kLong));
    input.segments.q_starts.push_back(input.segments.q_starts.back() + count);
  }
  input.segments.k_starts = input.segments.q_starts;
  input.ids_N = at::cat(ids);
  input.positions_N = at::cat(positions);
  return input;
}

/// One layer of the chain and the sequences on their way through it.
class CalibratedLayer {
 public:
  CalibratedLayer(layers::Block& block, std::vector<CalibrationBatch>& batches)
      : block_(block), batches_(batches) {
    layers::LinearVisitor visitor([this](layers::Linear& linear) { linears_.push_back(&linear); });
    block.visit(visitor);
  }

  /// The linear layers, those with the same input together, in the order of a pass.
  std::vector<std::vector<layers::Linear*>> stages() const {
    std::vector<std::vector<layers::Linear*>> found;
    at::Tensor last;
    const layers::LinearInputs listening([&](const layers::Linear& linear, const at::Tensor& x_NI) {
      layers::Linear* const own = of_block(linear);
      if (!own) return;
      if (!last.defined() || !x_NI.is_same(last)) found.emplace_back();
      last = x_NI;
      found.back().push_back(own);
    });
    pass(batches_.front());
    size_t count = 0;
    for (const auto& stage : found) count += stage.size();
    if (count != linears_.size()) {
      throw ModelError(tr("[gptq] a pass does not go through each linear layer of a block once "
                          "({} of {}): such models are not calibrated",
                          count, linears_.size()),
                       tr("danlu export --quant_method bnb, or danlu convert --to gguf --outtype "
                          "q4_0, needs none"));
    }
    return found;
  }

  /// The sum of x x^T of the layer's inputs, f64 on the model's device.
  at::Tensor hessian_of(const layers::Linear& wanted) const {
    const int64_t cols = wanted.weight.tensor.size(1);
    at::Tensor sum_II = at::zeros({cols, cols}, wanted.weight.tensor.options().dtype(at::kDouble));
    const layers::LinearInputs listening([&](const layers::Linear& linear, const at::Tensor& x_NI) {
      if (&linear != &wanted) return;
      const at::Tensor wide_NI = x_NI.to(at::kFloat);
      sum_II.add_(at::mm(wide_NI.t(), wide_NI));
    });
    for (const CalibrationBatch& batch : batches_) pass(batch);
    return sum_II;
  }

  void go_on() {
    for (CalibrationBatch& batch : batches_) batch.hidden_NH = pass(batch);
  }

 private:
  layers::Linear* of_block(const layers::Linear& linear) const {
    const auto at = std::find(linears_.begin(), linears_.end(), &linear);
    return at == linears_.end() ? nullptr : *at;
  }
  at::Tensor pass(const CalibrationBatch& batch) const {
    return block_.forward(batch.hidden_NH, batch.pass, {}, {});
  }

  layers::Block& block_;
  std::vector<CalibrationBatch>& batches_;
  std::vector<layers::Linear*> linears_;
};

std::string what_is_not_calibrated(const arch::ModelConfig& config) {
  if (config.has_experts()) return tr("experts");
  if (config.vision) return tr("a vision tower");
  if (config.score) return tr("a head of scores");
  if (arch::turns_matrices(config)) return tr("matrices that its files hold turned over");
  return "";
}

}  // namespace

void require_calibrated(const arch::ModelConfig& config, const GptqForm& form) {
  const std::string other = what_is_not_calibrated(config);
  if (!other.empty()) {
    throw UsageError(
        tr("[gptq] {} has {}, which no calibration is there for", config.family, other),
        tr("danlu export --quant_method bnb, or danlu convert --to gguf --outtype "
           "q4_0, needs none"));
  }
  const int64_t most = form.bits == 3 ? 32 : 32 / form.bits;
  for (const arch::ParamSpec& spec : arch::parameters_of(config)) {
    if (spec.layer < 0 || spec.shape.size() != 2 || spec.is_bias) continue;
    if (spec.shape[0] % most == 0 && spec.shape[1] % most == 0) continue;
    throw ModelError(
        tr("[gptq] {} is {} x {}: words of 32 bits hold {} codes, which must divide "
           "both",
           spec.name, spec.shape[0], spec.shape[1], most));
  }
}

void calibrate_gptq(CausalLM& model, const Calibration& calibration, const GptqForm& form,
                    const TakeGptq& take, const std::function<void(int64_t layers)>& progress) {
  const at::NoGradGuard no_grad;
  CausalLM::Impl& impl = model.impl();
  require_calibrated(impl.config, form);
  std::vector<CalibrationBatch> batches;
  const auto step = static_cast<size_t>(std::max<int64_t>(calibration.batch_size, 1));
  for (size_t i = 0; i < calibration.texts.size(); i += step) {
    const ForwardInput input =
        input_of(calibration, i, std::min(i + step, calibration.texts.size()));
    batches.push_back({impl.pass_for(input), impl.embedded(input, {})});
  }
  if (batches.empty()) throw InternalError("[calibrate] there are no texts");
  int64_t done = 0;
  for (auto& [number, block] : impl.network.layers) {
    CalibratedLayer layer(*block, batches);
    for (const std::vector<layers::Linear*>& stage : layer.stages()) {
      const at::Tensor hessian_II = layer.hessian_of(*stage.front());
      for (layers::Linear* const linear : stage) {
        GptqMatrix made =
            quantise_by_gptq(linear->weight.tensor, hessian_II.clone(), form, linear->path);
        linear->weight.tensor.copy_(made.dense_OI);
        made.dense_OI.reset();
        take(linear->path, std::move(made));
      }
    }
    layer.go_on();
    progress(++done);
  }
}

}  // namespace danlu::models
