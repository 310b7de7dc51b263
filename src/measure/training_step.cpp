#include "measure/training_step.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <vector>

#include "arch/model_config.h"
#include "base/rng.h"
#include "models/adapters.h"
#include "models/causal_lm.h"
#include "models/training_memory.h"
#include "models/weight_files.h"
#include "optim/adamw.h"

namespace danlu::measure {
arch::ModelConfig config_of(const StepShape& shape) {
  const Json json = {{"model_type", "qwen2"},
                     {"vocab_size", shape.vocab},
                     {"hidden_size", shape.hidden},
                     {"intermediate_size", shape.ffn},
                     {"num_hidden_layers", shape.layers},
                     {"num_attention_heads", shape.heads},
                     {"num_key_value_heads", shape.kv_heads},
                     {"max_position_embeddings", std::max<int64_t>(4096, shape.sequence)},
                     {"rms_norm_eps", 1e-6},
                     {"rope_theta", 10000.0},
                     {"tie_word_embeddings", true}};
  return arch::family_of(json).parse(json);
}

namespace {

models::ForwardInput input_of(const StepShape& shape, at::Tensor& targets_N) {
  std::vector<int64_t> ids, targets, positions;
  models::ForwardInput input;
  input.segments = {{0}, {0}};
  for (int64_t b = 0; b < shape.batch; ++b) {
    const auto token = [&](int64_t t) {
      return static_cast<int64_t>(mix64(static_cast<uint64_t>(b), static_cast<uint64_t>(t)) %
                                  static_cast<uint64_t>(shape.vocab));
    };
    for (int64_t t = 0; t < shape.sequence; ++t) {
      ids.push_back(token(t));
      targets.push_back(token(t + 1));
      positions.push_back(t);
    }
    input.segments.q_starts.push_back((b + 1) * shape.sequence);
    input.segments.k_starts.push_back((b + 1) * shape.sequence);
  }
  input.ids_N = at::tensor(ids, at::kLong);
  input.positions_N = at::tensor(positions, at::kLong);
  targets_N = at::tensor(targets, at::kLong);
  return input;
}

weights::PeftConfig adapters(int64_t rank) {
  weights::PeftConfig lora;
  lora.rank = rank;
  lora.alpha = 2.0 * static_cast<double>(rank);
  lora.target_modules = {"q_proj",    "k_proj",  "v_proj",   "o_proj",
                         "gate_proj", "up_proj", "down_proj"};
  return lora;
}

parallel::ParameterStore& initialized(models::CausalLM& model, int64_t lora_rank) {
  models::initialize(model, 0);
  if (lora_rank > 0) models::add_lora(model, adapters(lora_rank), 0);
  return models::keep(model, {});
}

optim::AdamWConfig adamw() {
  optim::AdamWConfig config;
  config.groups.weight_decay = 0.01;  // torch.optim.AdamW's default, as peers use it
  return config;
}

double count_of(const std::vector<models::Parameter>& parameters) {
  double count = 0;
  for (const models::Parameter& parameter : parameters)
    count += static_cast<double>(parameter.tensor.numel());
  return count;
}

}  // namespace

struct TrainingStep::Impl {
  Impl(const StepShape& of, at::ScalarType with, const at::Device& device)
      : shape(of),
        type(with),
        model(config_of(of), parallel::Mesh::single(), with, device),
        store(initialized(model, of.lora_rank)),
        gradients(store),
        optimizer(store, adamw()),
        input(input_of(of, targets_N)),
        parameters(static_cast<double>(arch::parameter_count(model.config()))),
        trained(of.lora_rank > 0 ? count_of(model.adapter_parameters()) : parameters) {}
  /// f16 gradients need one to stay in range.
  double loss_scale() const { return type == at::kHalf ? 1024.0 : 1.0; }

  StepShape shape;
  at::ScalarType type;
  models::CausalLM model;
  parallel::ParameterStore& store;
  optim::GradBuffer gradients;
  optim::AdamW optimizer;
  at::Tensor targets_N;
  models::ForwardInput input;
  double parameters, trained;
  bool has_gradients = false;
};

TrainingStep::TrainingStep(const StepShape& shape, at::ScalarType type, const at::Device& device)
    : impl_(std::make_unique<Impl>(shape, type, device)) {}
TrainingStep::~TrainingStep() = default;

double TrainingStep::forward_and_backward() {
  impl_->gradients.zero();
  const double scale = impl_->loss_scale() / tokens();
  const models::LossSum result = impl_->model.loss(impl_->input, impl_->targets_N, scale);
  torch::autograd::backward({result.sum}, {result.factor});
  impl_->gradients.end_pass();
  impl_->has_gradients = true;
  return result.sum.item<double>() / static_cast<double>(result.num_targets);
}

void TrainingStep::require_gradients() {
  if (!impl_->has_gradients) forward_and_backward();
}

void TrainingStep::update() {
  require_gradients();
  impl_->optimizer.step(impl_->gradients, 1e-4, 1.0 / impl_->loss_scale());
}

double TrainingStep::run() {
  const double loss = forward_and_backward();
  update();
  return loss;
}

double TrainingStep::gradient_norm() {
  require_gradients();
  return impl_->gradients.norm(1.0);
}

double TrainingStep::tokens() const { return static_cast<double>(impl_->targets_N.numel()); }
double TrainingStep::parameters() const { return impl_->parameters; }
double TrainingStep::trained_parameters() const { return impl_->trained; }

bench::Work TrainingStep::work() const {
  const double a_token =
      impl_->shape.lora_rank > 0 ? 4 * parameters() + 6 * trained_parameters() : 6 * parameters();
  return {a_token * tokens(), impl_->type == at::kBFloat16, 0, 0};
}

bench::Work TrainingStep::update_work() const {
  const double n = trained_parameters();
  // f32 weights are their own masters, bf16 ones half of theirs; others are written beside them.
  const double copy = impl_->type == at::kHalf ? 2 : 0;
  return {15 * n, false, 16 * n, (12 + copy) * n};
}

bench::Work TrainingStep::norm_work() const {
  const double n = trained_parameters();
  return {2 * n, false, 4 * n, 0};
}

}  // namespace danlu::measure
