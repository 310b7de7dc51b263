#include "optim/adamw.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <cmath>
#include <span>

#include "base/error.h"

namespace danlu::optim {
namespace {

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

/// Host memory as a flat tensor.
at::Tensor flat_of(float* values, int64_t count) {
  return at::from_blob(values, {count}, at::TensorOptions(at::kFloat));
}

/// Masters as an update rounds them.
at::Tensor rounded(const at::Tensor& masters, at::ScalarType type) {
  if (type != at::kBFloat16) return masters.to(type);
  const at::Tensor weights = at::empty_like(masters, type);
  ops::split_master(masters, weights, at::empty_like(masters, at::kShort));
  return weights;
}

}  // namespace

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
    const bool is_elsewhere = state.exp_avg.device() != unit.shard.device();
    const at::ScalarType type = unit.shard.scalar_type();
    state.is_own_master = type == at::kFloat && !is_elsewhere;
    // Blocks of files go to and fro whole: a master's half beside its weight is for memory.
    if (type == at::kBFloat16 && !is_elsewhere && !is_in_files()) {
      state.low = at::zeros({unit.share.size()}, unit.shard.options().dtype(at::kShort));
    } else {
      state.master = state.is_own_master ? unit.shard : zeros().copy_(unit.shard);
    }
    for (const device::FileTensor& file : state.files) file.sync_mapping();
  }
  const parallel::Mesh& mesh = store_.mesh();
  settings_ = settings_of(parameters_, config_.groups,
                          {&mesh.cutting(mesh.shape().expert_axes()), &mesh.pipeline()});
}

at::Tensor AdamW::state_memory(UnitState& state, int64_t elements,
                               const at::TensorOptions& options) {
  if (!is_in_files()) return at::zeros({elements}, options);
  return state.files.emplace_back(store_.keeping().state_in, elements).tensor();
}

int64_t AdamW::state_bytes() const {
  size_t bytes = 0;
  for (const UnitState& state : units_) {
    for (const at::Tensor& part : {state.exp_avg, state.exp_avg_sq, state.master, state.low}) {
      const bool is_share = state.is_own_master && part.is_same(state.master);
      if (part.defined() && !is_share) bytes += part.nbytes();
    }
  }
  return static_cast<int64_t>(bytes);
}

void AdamW::step(const GradBuffer& gradients, double lr, double grad_scale) {
  const at::NoGradGuard no_grad;
  if (before_update_) before_update_();
  ++updates_;
  std::vector<AdamWScalars> scalars;
  for (const ParameterSettings& settings : settings_)
    scalars.push_back(scalars_of(config_, settings, updates_, lr, grad_scale));
  for (size_t u = 0; u < units_.size(); ++u) {
    if (!units_[u].exp_avg.defined()) continue;
    update(u, gradients.share(u).to(units_[u].exp_avg.device()), scalars);
    store_.publish(u);
  }
}

void AdamW::update(size_t unit, const at::Tensor& gradient,
                   const std::vector<AdamWScalars>& scalars) {
  const UnitState& state = units_[unit];
  const std::span own(scalars.begin() + static_cast<std::ptrdiff_t>(state.first_parameter),
                      state.ranges.size());
  const at::Tensor& shard = store_.units()[unit].shard;
  // A share elsewhere is rounded below, at once.
  const bool is_here = shard.device() == state.exp_avg.device();
  const bool rounds = !state.is_own_master && is_here;
  if (state.files.empty()) {
    ops::adamw_update({state.master, state.exp_avg, state.exp_avg_sq, gradient,
                       rounds ? shard : at::Tensor(), state.low},
                      state.chunks, own);
  } else if (gradient.numel() > 0) {
    std::vector<const device::FileTensor*> files;
    for (const device::FileTensor& file : state.files) {
      file.release_pages();  // that a checkpoint has read
      files.push_back(&file);
    }
    device::update_blocks(files, [&](const device::Block& block) {
      const int64_t count = block.end - block.begin;
      const auto part = [&](const at::Tensor& flat) { return flat.narrow(0, block.begin, count); };
      std::vector<Chunk> chunks = chunks_in(state.chunks, {block.begin, block.end});
      for (Chunk& chunk : chunks)
        chunk.at = {chunk.at.begin - block.begin, chunk.at.end - block.begin};
      ops::adamw_update(
          {state.is_own_master ? part(state.master) : flat_of(block.values.back(), count),
           flat_of(block.values[0], count), flat_of(block.values[1], count), part(gradient),
           rounds ? part(shard) : at::Tensor()},
          chunks, own);
    });
  }
  // Rounded first: less to carry.
  if (!is_here) at::Tensor(shard).copy_(rounded(state.master, shard.scalar_type()));
}

std::vector<StatePart> AdamW::state(bool exact_weights) const {
  std::vector<StatePart> parts;
  for (size_t u = 0; u < units_.size(); ++u) {
    const parallel::Unit& unit = store_.units()[u];
    const UnitState& state = units_[u];
    for (size_t i = 0; i < state.ranges.size(); ++i) {
      const auto add = [&](const char* kind, const StateValues& flat) {
        parts.push_back({kind + unit.parameters[i]->name(), unit.parameters[i], unit.held(i),
                         flat.narrow(state.ranges[i].begin, state.ranges[i].size())});
      };
      if (state.ranges[i].size() == 0 && unit.parameters[i]->tensor.numel() > 0) continue;
      add("exp_avg.", StateValues(state.exp_avg));
      add("exp_avg_sq.", StateValues(state.exp_avg_sq));
      if (state.low.defined()) {
        add("master.", StateValues(unit.shard, state.low));
      } else if (exact_weights || !state.is_own_master) {
        add("master.", StateValues(state.master));
      }
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
    for (const auto& [rect, holders] : parallel::held_rects(*part.parameter, part.held)) {
      const StateValues values = part.values.narrow(at, rect.rows * rect.cols);
      at += rect.rows * rect.cols;
      const auto take = [&, rect = rect](const std::string& name) {
        return values.take(rect.rows, rect.cols, [&](int64_t first_row, const at::Tensor& to) {
          return read(name, shape, {rect.row + first_row, to.size(0), rect.col, rect.cols}, to);
        });
      };
      if (take(part.name)) continue;
      // Weights of f32 parameters may live in the model files alone.
      if (is_master && part.parameter->tensor.scalar_type() == at::kFloat) continue;
      if (is_master && take(part.parameter->name())) continue;
      throw ModelError(tr("[optimizer state] tensor '{}' is missing", part.name));
    }
  }
  for (size_t u = 0; u < units_.size(); ++u) {
    const UnitState& state = units_[u];
    if (!state.exp_avg.defined()) continue;
    if (state.master.defined() && !state.is_own_master) {
      const at::Tensor& shard = store_.units()[u].shard;
      shard.copy_(rounded(state.master, shard.scalar_type()));
    }
    for (const device::FileTensor& file : state.files) file.sync_mapping();
    store_.publish(u);
  }
  store_.settle();
  updates_ = updates;
}

}  // namespace danlu::optim
