#include "optim/adamw.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include <cmath>

#include "base/dtype.h"
#include "base/error.h"
#include "optim/kernels.h"

namespace danlu::optim {
namespace adamw_detail {

std::vector<int64_t> element_counts(const std::vector<Parameter>& parameters) {
  std::vector<int64_t> counts;
  for (const Parameter& parameter : parameters) counts.push_back(parameter.tensor.numel());
  return counts;
}

AdamWScalars scalars_of(const AdamWConfig& config, const ParameterSettings& settings,
                        int64_t update, double lr, double grad_scale) {
  const double rate = lr * settings.lr_scale;
  const double bias1 = 1.0 - std::pow(config.beta1, static_cast<double>(update));
  const double bias2 = 1.0 - std::pow(config.beta2, static_cast<double>(update));
  return {static_cast<float>(config.beta1),
          static_cast<float>(config.beta2),
          static_cast<float>(1.0 - config.beta1),
          static_cast<float>(1.0 - config.beta2),
          static_cast<float>(config.eps),
          static_cast<float>(rate / bias1),
          static_cast<float>(1.0 / std::sqrt(bias2)),
          static_cast<float>(1.0 - rate * settings.weight_decay),
          static_cast<float>(grad_scale)};
}

}  // namespace adamw_detail

void AdamWConfig::validate() const {
  const auto bad = [](const char* field, double got, const char* rule) {
    throw UsageError(tr("[adamw] {} must be {}, got {}", field, rule, got));
  };
  if (!(beta1 >= 0 && beta1 < 1)) bad("adam_beta1", beta1, "in [0, 1)");
  if (!(beta2 >= 0 && beta2 < 1)) bad("adam_beta2", beta2, "in [0, 1)");
  if (!(eps > 0) || !std::isfinite(eps)) bad("adam_epsilon", eps, "positive");
  if (!(groups.weight_decay >= 0) || !std::isfinite(groups.weight_decay))
    bad("weight_decay", groups.weight_decay, "≥ 0");
}

int64_t adamw_state_bytes(const std::vector<Parameter>& parameters) {
  int64_t bytes = 0;
  for (const Parameter& parameter : parameters) {
    bytes += parameter.tensor.numel() * (parameter.tensor.scalar_type() == at::kFloat ? 8 : 12);
  }
  return bytes;
}

AdamW::AdamW(std::vector<Parameter> parameters, const AdamWConfig& config)
    : parameters_(std::move(parameters)),
      config_(config),
      layout_(adamw_detail::element_counts(parameters_)) {
  config_.validate();
  settings_ = settings_of(parameters_, config_.groups);
  at::NoGradGuard no_grad;
  const auto device =
      parameters_.empty() ? at::Device(at::kCPU) : parameters_.front().tensor.device();
  exp_avg_ = at::zeros({layout_.total()}, at::TensorOptions(at::kFloat).device(device));
  exp_avg_sq_ = at::zeros_like(exp_avg_);
  for (const Parameter& parameter : parameters_) {
    const at::Tensor detached = parameter.tensor.detach();
    masters_.push_back(detached.scalar_type() == at::kFloat ? detached : detached.to(at::kFloat));
  }
}

void AdamW::step(const GradBuffer& gradients, double lr, double grad_scale) {
  at::NoGradGuard no_grad;
  ++updates_;
  if (exp_avg_.device().is_cpu()) {
    update_fused(gradients, lr, grad_scale);
  } else {
    update_composite(gradients, lr, grad_scale);
  }
}

void AdamW::update_fused(const GradBuffer& gradients, double lr, double grad_scale) {
  std::vector<AdamWScalars> scalars;
  for (const ParameterSettings& settings : settings_) {
    scalars.push_back(adamw_detail::scalars_of(config_, settings, updates_, lr, grad_scale));
  }
  float* exp_avg = exp_avg_.data_ptr<float>();
  float* exp_avg_sq = exp_avg_sq_.data_ptr<float>();
  const float* grad = gradients.flat().data_ptr<float>();
  for_each_chunk(layout_, [&](size_t i) {
    const Chunk& chunk = layout_.chunks()[i];
    const size_t index = static_cast<size_t>(chunk.index);
    const int64_t at = chunk.offset + chunk.begin;
    adamw_update(masters_[index].data_ptr<float>() + chunk.begin, exp_avg + at, exp_avg_sq + at,
                 grad + at, chunk.end - chunk.begin, scalars[index]);
    write_back(index, chunk.begin, chunk.end);
  });
}

void AdamW::write_back(size_t index, int64_t begin, int64_t end) {
  const at::Tensor& tensor = parameters_[index].tensor;
  const float* from = masters_[index].data_ptr<float>();
  if (tensor.scalar_type() == at::kBFloat16) {
    round_to_bf16(reinterpret_cast<uint16_t*>(tensor.data_ptr()) + begin, from + begin,
                  end - begin);
  } else if (tensor.scalar_type() == at::kHalf) {
    cast_elements(from + begin, DType::kF32, tensor.data_ptr<at::Half>() + begin, DType::kF16,
                  static_cast<size_t>(end - begin));
  }
}

void oracle::adamw_update(at::Tensor master, at::Tensor exp_avg, at::Tensor exp_avg_sq,
                          const at::Tensor& grad, const AdamWScalars& s) {
  const at::Tensor scaled = grad * s.grad_scale;
  exp_avg.mul_(s.beta1).add_(scaled, s.one_minus_beta1);
  exp_avg_sq.mul_(s.beta2).addcmul_(scaled, scaled, s.one_minus_beta2);
  master.mul_(s.keep).addcdiv_(exp_avg, exp_avg_sq.sqrt().mul_(s.inv_sqrt_bias2).add_(s.eps),
                               -s.step_size);
}

void AdamW::update_composite(const GradBuffer& gradients, double lr, double grad_scale) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const int64_t index = static_cast<int64_t>(i);
    const AdamWScalars s =
        adamw_detail::scalars_of(config_, settings_[i], updates_, lr, grad_scale);
    oracle::adamw_update(masters_[i].view({-1}),
                         exp_avg_.narrow(0, layout_.offset(index), layout_.size(index)),
                         exp_avg_sq_.narrow(0, layout_.offset(index), layout_.size(index)),
                         gradients.grad(i).flatten(), s);
    if (parameters_[i].tensor.scalar_type() != at::kFloat)
      parameters_[i].tensor.detach().copy_(masters_[i]);
  }
}

StateTensors AdamW::state(bool exact_weights) const {
  StateTensors tensors;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const int64_t index = static_cast<int64_t>(i);
    const auto slice = [&](const at::Tensor& flat) {
      return flat.narrow(0, layout_.offset(index), layout_.size(index))
          .view(parameters_[i].tensor.sizes());
    };
    const auto add = [&](const char* kind, const at::Tensor& tensor) {
      tensors.push_back(parameters_[i]);
      tensors.back().spec.name = kind + parameters_[i].name();
      tensors.back().tensor = tensor;
    };
    add("exp_avg.", slice(exp_avg_));
    add("exp_avg_sq.", slice(exp_avg_sq_));
    if (exact_weights || parameters_[i].tensor.scalar_type() != at::kFloat)
      add("master.", masters_[i]);
  }
  return tensors;
}

bool AdamW::lives_in_parameter(const std::string& name) const {
  for (const Parameter& parameter : parameters_) {
    if (parameter.name() == name) return parameter.tensor.scalar_type() == at::kFloat;
  }
  return false;
}

void AdamW::load_state(const std::function<at::Tensor(const std::string&)>& find, int64_t updates) {
  at::NoGradGuard no_grad;
  for (const Parameter& target : state(true)) {
    const std::string& name = target.name();
    at::Tensor saved = find(name);
    if (!saved.defined() && name.starts_with("master.")) {
      // Weights of f32 parameters may live in the model files alone.
      if (lives_in_parameter(name.substr(7))) continue;
      saved = find(name.substr(7));
    }
    if (!saved.defined()) {
      throw ModelError(tr("[optimizer state] tensor '{}' is missing", name));
    }
    if (saved.sizes() != at::IntArrayRef(target.spec.shape)) {
      throw ModelError(
          tr("[optimizer state] tensor '{}' has {} elements in the checkpoint, {} in the model",
             name, saved.numel(), target.tensor.numel()));
    }
    at::Tensor(target.tensor)
        .copy_(target.is_whole() ? saved : parallel::cut_out(saved, target.pieces));
  }
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].tensor.scalar_type() != at::kFloat)
      parameters_[i].tensor.detach().copy_(masters_[i]);
  }
  updates_ = updates;
}

}  // namespace danlu::optim
