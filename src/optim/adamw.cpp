#include "optim/adamw.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <cmath>

#include "base/dtype.h"
#include "base/error.h"
#include "optim/kernels.h"

namespace danlu::optim {
namespace adamw_detail {

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

/// Elements `at` of a share in 16 bits, from their masters.
void round_into(const at::Tensor& share, const Range& at, const float* from) {
  if (share.scalar_type() == at::kBFloat16) {
    round_to_bf16(reinterpret_cast<uint16_t*>(share.data_ptr()) + at.begin, from, at.size());
  } else if (share.scalar_type() == at::kHalf) {
    cast_elements(from, DType::kF32, share.data_ptr<at::Half>() + at.begin, DType::kF16,
                  static_cast<size_t>(at.size()));
  }
}

}  // namespace adamw_detail

AdamW::AdamW(parallel::ParameterStore& store, const AdamWConfig& config)
    : store_(store), config_(config) {
  config_.validate();
  const at::NoGradGuard no_grad;
  for (const parallel::Unit& unit : store.units()) {
    UnitState& state = units_.emplace_back();
    state.first_parameter = parameters_.size();
    if (!unit.trainable) continue;
    for (size_t i = 0; i < unit.parameters.size(); ++i) {
      parameters_.push_back(unit.parameters[i]);
      state.ranges.push_back(unit.place_in_share(i));
    }
    state.chunks = chunks_of(state.ranges);
    const auto zeros = [&] {
      return state_memory(state, unit.share.size(), unit.shard.options().dtype(at::kFloat));
    };
    state.exp_avg = zeros();
    state.exp_avg_sq = zeros();
    const bool is_elsewhere = is_in_files() && !unit.shard.is_cpu();
    state.is_own_master = unit.shard.scalar_type() == at::kFloat && !is_elsewhere;
    state.master = state.is_own_master ? unit.shard : zeros().copy_(unit.shard);
    for (const device::FileTensor& file : state.files) file.sync_mapping();
  }
  settings_ = settings_of(parameters_, config_.groups, store_.mesh().pipeline());
}

at::Tensor AdamW::state_memory(UnitState& state, int64_t elements,
                               const at::TensorOptions& options) {
  if (!is_in_files()) return at::zeros({elements}, options);
  return state.files.emplace_back(store_.keeping().state_in, elements).tensor();
}

int64_t AdamW::state_bytes() const {
  int64_t bytes = 0;
  for (size_t u = 0; u < units_.size(); ++u) {
    if (units_[u].master.defined())
      bytes += static_cast<int64_t>(units_[u].master.nbytes()) * (units_[u].is_own_master ? 2 : 3);
  }
  return bytes;
}

void AdamW::step(const GradBuffer& gradients, double lr, double grad_scale) {
  const at::NoGradGuard no_grad;
  if (before_update_) before_update_();
  ++updates_;
  std::vector<AdamWScalars> scalars;
  for (const ParameterSettings& settings : settings_)
    scalars.push_back(adamw_detail::scalars_of(config_, settings, updates_, lr, grad_scale));
  for (size_t u = 0; u < units_.size(); ++u) {
    if (!units_[u].master.defined()) continue;
    const at::Tensor gradient = gradients.share(u).to(units_[u].master.device());
    if (gradient.is_cpu()) {
      update_fused(u, gradient, scalars);
    } else {
      update_composite(u, gradient, scalars);
    }
    store_.publish(u);
  }
}

void AdamW::update_fused(size_t unit, const at::Tensor& gradient,
                         const std::vector<AdamWScalars>& scalars) {
  const UnitState& state = units_[unit];
  const float* grad = gradient.data_ptr<float>();
  const at::Tensor& shard = store_.units()[unit].shard;
  // Pointers to the first element of `part`.
  const auto update = [&](const Range& part, float* master, float* exp_avg, float* exp_avg_sq) {
    const std::vector<Chunk> chunks = chunks_in(state.chunks, part);
    for_each_chunk(chunks, [&](size_t i) {
      const Range& at = chunks[i].at;
      const int64_t from = at.begin - part.begin;
      adamw_update(master + from, exp_avg + from, exp_avg_sq + from, grad + at.begin, at.size(),
                   scalars[state.first_parameter + chunks[i].index]);
      if (shard.is_cpu()) adamw_detail::round_into(shard, at, master + from);
    });
  };
  if (state.files.empty()) {
    update({0, gradient.numel()}, state.master.data_ptr<float>(), state.exp_avg.data_ptr<float>(),
           state.exp_avg_sq.data_ptr<float>());
  } else if (gradient.numel() > 0) {
    std::vector<const device::FileTensor*> files;
    for (const device::FileTensor& file : state.files) {
      file.release_pages();  // that a checkpoint has read
      files.push_back(&file);
    }
    device::update_blocks(files, [&](const device::Block& block) {
      float* master =
          state.is_own_master ? state.master.data_ptr<float>() + block.begin : block.values.back();
      update({block.begin, block.end}, master, block.values[0], block.values[1]);
    });
  }
  // Rounded first: less to carry.
  if (!shard.is_cpu()) at::Tensor(shard).copy_(state.master.to(shard.scalar_type()));
}

void oracle::adamw_update(at::Tensor master, at::Tensor exp_avg, at::Tensor exp_avg_sq,
                          const at::Tensor& grad, const AdamWScalars& s) {
  const at::Tensor scaled = grad * s.grad_scale;
  exp_avg.mul_(s.beta1).add_(scaled, s.one_minus_beta1);
  exp_avg_sq.mul_(s.beta2).addcmul_(scaled, scaled, s.one_minus_beta2);
  master.mul_(s.keep).addcdiv_(exp_avg, exp_avg_sq.sqrt().mul_(s.inv_sqrt_bias2).add_(s.eps),
                               -s.step_size);
}

void AdamW::update_composite(size_t unit, const at::Tensor& gradient,
                             const std::vector<AdamWScalars>& scalars) {
  const UnitState& state = units_[unit];
  for (size_t i = 0; i < state.ranges.size(); ++i) {
    const Range& at = state.ranges[i];
    const auto part = [&](const at::Tensor& flat) { return flat.narrow(0, at.begin, at.size()); };
    oracle::adamw_update(part(state.master), part(state.exp_avg), part(state.exp_avg_sq),
                         part(gradient), scalars[state.first_parameter + i]);
  }
  if (!state.is_own_master) at::Tensor(store_.units()[unit].shard).copy_(state.master);
}

std::vector<StatePart> AdamW::state(bool exact_weights) const {
  std::vector<StatePart> parts;
  for (size_t u = 0; u < units_.size(); ++u) {
    const parallel::Unit& unit = store_.units()[u];
    const UnitState& state = units_[u];
    for (size_t i = 0; i < state.ranges.size(); ++i) {
      const auto add = [&](const char* kind, const at::Tensor& flat) {
        parts.push_back({kind + unit.parameters[i]->name(), unit.parameters[i], unit.held(i),
                         flat.narrow(0, state.ranges[i].begin, state.ranges[i].size())});
      };
      if (state.ranges[i].size() == 0 && unit.parameters[i]->tensor.numel() > 0) continue;
      add("exp_avg.", state.exp_avg);
      add("exp_avg_sq.", state.exp_avg_sq);
      if (exact_weights || !units_[u].is_own_master) add("master.", state.master);
    }
  }
  return parts;
}

void AdamW::load_state(const Reader& read, int64_t updates) {
  const at::NoGradGuard no_grad;
  for (const StatePart& part : state(true)) {
    const bool is_master = part.name.starts_with("master.");
    int64_t at = 0;
    const std::vector<int64_t>& shape = part.parameter->spec.shape;
    for (const auto& [rect, copies] : parallel::pieces_of(*part.parameter, part.held)) {
      const at::Tensor to =
          part.values.narrow(0, at, rect.rows * rect.cols).view({rect.rows, rect.cols});
      at += rect.rows * rect.cols;
      if (read(part.name, shape, rect, to)) continue;
      // Weights of f32 parameters may live in the model files alone.
      if (is_master && part.parameter->tensor.scalar_type() == at::kFloat) continue;
      if (is_master && read(part.parameter->name(), shape, rect, to)) continue;
      throw ModelError(tr("[optimizer state] tensor '{}' is missing", part.name));
    }
  }
  for (size_t u = 0; u < units_.size(); ++u) {
    if (!units_[u].master.defined()) continue;
    if (!units_[u].is_own_master) store_.units()[u].shard.copy_(units_[u].master);
    for (const device::FileTensor& file : units_[u].files) file.sync_mapping();
    store_.publish(u);
  }
  store_.settle();
  updates_ = updates;
}

}  // namespace danlu::optim
