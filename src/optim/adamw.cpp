#include "optim/adamw.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <cmath>
#include <span>

#include "base/error.h"
#include "optim/muon.h"

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

/// UnitState::trained; undefined where nothing is fixed.
at::Tensor trained_mask(const parallel::Parameter& parameter, const Range& held) {
  if (!parameter.fixed) return {};
  const at::Tensor mask = at::ones(
      parameter.tensor.sizes(), parameter.tensor.options().dtype(at::kFloat).requires_grad(false));
  parallel::for_each_fixed(parameter, mask, [](const at::Tensor& part_RC) { part_RC.zero_(); });
  return mask.view({-1}).narrow(0, held.begin, held.size());
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
      state.by_muon.push_back(moments_of(*unit.parameters[i]) == 1);
      state.has_muon |= state.by_muon.back();
      state.trained.push_back(trained_mask(*unit.parameters[i], unit.held(i)));
    }
    make_state(unit, state);
  }
  const parallel::Mesh& mesh = store_.mesh();
  settings_ = settings_of(parameters_, config_.groups,
                          {&mesh.cutting(mesh.shape().expert_axes()), &mesh.pipeline()});
}

void AdamW::make_state(const parallel::Unit& unit, UnitState& state) {
  if (state.has_muon && is_in_files())
    throw InternalError("[muon] a matrix is updated at once, not in blocks of files");
  state.chunks = chunks_of(state.ranges);
  const auto zeros = [&](int64_t elements) {
    return state_memory(state, elements, unit.shard.options().dtype(at::kFloat));
  };
  int64_t squares = 0;
  for (size_t i = 0; i < state.ranges.size(); ++i) {
    const int64_t size = state.by_muon[i] ? 0 : state.ranges[i].size();
    state.squares_ranges.push_back({squares, squares + size});
    squares += size;
  }
  if (!state.has_muon) state.squares_ranges = state.ranges;
  state.exp_avg = zeros(unit.share.size());
  state.exp_avg_sq = zeros(state.has_muon ? squares : unit.share.size());
  const bool is_elsewhere = state.exp_avg.device() != unit.shard.device();
  const at::ScalarType type = unit.shard.scalar_type();
  state.is_own_master = type == at::kFloat && !is_elsewhere;
  // Blocks of files go to and fro whole: a master's half beside its weight is for memory.
  if (type == at::kBFloat16 && !is_elsewhere && !is_in_files()) {
    state.low = at::zeros({unit.share.size()}, unit.shard.options().dtype(at::kShort));
  } else {
    state.master = state.is_own_master ? unit.shard : zeros(unit.share.size()).copy_(unit.shard);
  }
  for (const device::FileTensor& file : state.files) file.sync_mapping();
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
  for (size_t i = 0; i < settings_.size(); ++i) {
    ParameterSettings settings = settings_[i];
    if (parameters_[i]->fixed) settings.weight_decay = 0;  // decay_trained has it
    scalars.push_back(scalars_of(config_, settings, updates_, lr, grad_scale));
  }
  for (size_t u = 0; u < units_.size(); ++u) {
    const UnitState& state = units_[u];
    if (!state.exp_avg.defined()) continue;
    for (size_t i = 0; i < state.trained.size(); ++i) decay_trained(u, i, lr);
    const at::Tensor gradient = gradients.share(u).to(state.exp_avg.device());
    const std::span own(scalars.begin() + static_cast<std::ptrdiff_t>(state.first_parameter),
                        state.ranges.size());
    if (state.has_muon) {
      update_each(u, gradient, own, lr, grad_scale);
    } else {
      update(u, gradient, own);
    }
    store_.publish(u);
  }
}

void AdamW::update(size_t unit, const at::Tensor& gradient, std::span<const AdamWScalars> scalars) {
  const UnitState& state = units_[unit];
  const at::Tensor& shard = store_.units()[unit].shard;
  // A share elsewhere is rounded below, at once.
  const bool is_here = shard.device() == state.exp_avg.device();
  const bool rounds = !state.is_own_master && is_here;
  if (state.files.empty()) {
    ops::adamw_update({state.master, state.exp_avg, state.exp_avg_sq, gradient,
                       rounds ? shard : at::Tensor(), state.low},
                      state.chunks, scalars);
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
          chunks, scalars);
    });
  }
  // Rounded first: less to carry.
  if (!is_here) at::Tensor(shard).copy_(rounded(state.master, shard.scalar_type()));
}

void AdamW::update_each(size_t unit, const at::Tensor& gradient,
                        std::span<const AdamWScalars> scalars, double lr, double grad_scale) {
  const UnitState& state = units_[unit];
  const at::Tensor& shard = store_.units()[unit].shard;
  for (size_t i = 0; i < state.ranges.size(); ++i) {
    const Range &at = state.ranges[i], &squares = state.squares_ranges[i];
    if (state.by_muon[i] || at.size() == 0) continue;
    const auto part = [&](const at::Tensor& flat) {
      return flat.defined() ? flat.narrow(0, at.begin, at.size()) : flat;
    };
    ops::adamw_update({part(state.master), part(state.exp_avg),
                       state.exp_avg_sq.narrow(0, squares.begin, squares.size()), part(gradient),
                       state.is_own_master ? at::Tensor() : part(shard), part(state.low)},
                      chunks_of({{0, at.size()}}), scalars.subspan(i, 1));
  }
  update_by_muon(unit, gradient, lr, grad_scale);
}

void AdamW::update_by_muon(size_t unit, const at::Tensor& gradient, double lr, double grad_scale) {
  const UnitState& state = units_[unit];
  const parallel::Unit& of = store_.units()[unit];
  const MuonConfig& muon = *config_.muon;
  const std::vector<NewtonSchulzStep> steps = settings::newton_schulz_steps(muon);
  const at::Tensor directions = at::zeros({of.share.size()}, gradient.options());
  for (size_t i = 0; i < state.ranges.size(); ++i) {
    const Range& at = state.ranges[i];
    const auto part = [&](const at::Tensor& flat) { return flat.narrow(0, at.begin, at.size()); };
    if (state.by_muon[i] && at.size() > 0)
      part(directions).copy_(muon_direction(part(state.exp_avg), part(gradient), grad_scale, muon));
  }
  const WholeDirections wholes(store_, of, directions);
  for (size_t i = 0; i < state.ranges.size(); ++i) {
    if (!state.by_muon[i]) continue;
    const at::Tensor whole_RC = wholes.of(i);
    if (state.ranges[i].size() == 0) continue;
    const Range held = of.held(i);
    const at::Tensor change =
        parallel::cut_out(orthogonalised(whole_RC, steps), of.parameters[i]->rects)
            .view({-1})
            .narrow(0, held.begin, held.size());
    const ParameterSettings& own = settings_[state.first_parameter + i];
    const double rate = lr * own.lr_scale;
    const double decay = state.trained[i].defined() ? 0 : rate * own.weight_decay;
    move(unit, state.ranges[i], 1.0 - decay,
         rate * settings::muon_scale(muon, whole_RC.size(0), whole_RC.size(1)), change);
  }
}

void AdamW::decay_trained(size_t unit, size_t index, double lr) {
  const UnitState& state = units_[unit];
  const ParameterSettings& own = settings_[state.first_parameter + index];
  const double decay = lr * own.lr_scale * own.weight_decay;
  const at::Tensor& trained = state.trained[index];
  if (!trained.defined() || decay == 0 || trained.numel() == 0) return;
  change_masters(unit, state.ranges[index],
                 [&](const at::Tensor& masters) { masters.mul_(1.0 - trained * decay); });
}

void AdamW::move(size_t unit, const Range& at, double keep, double step, const at::Tensor& change) {
  change_masters(unit, at,
                 [&](const at::Tensor& masters) { masters.mul_(keep).sub_(change * step); });
}

void AdamW::change_masters(size_t unit, const Range& at,
                           const std::function<void(const at::Tensor&)>& change) {
  const UnitState& state = units_[unit];
  const at::Tensor weight = store_.units()[unit].shard.narrow(0, at.begin, at.size());
  const auto part = [&](const at::Tensor& flat) { return flat.narrow(0, at.begin, at.size()); };
  const bool is_split = state.low.defined();
  const at::Tensor masters =
      is_split ? ops::join_master(weight, part(state.low)) : part(state.master);
  change(masters);
  if (is_split) {
    ops::split_master(masters, weight, part(state.low));
  } else if (!state.is_own_master) {
    weight.copy_(rounded(masters, weight.scalar_type()));
  }
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
      add(state.by_muon[i] ? "momentum." : "exp_avg.", StateValues(state.exp_avg));
      if (!state.by_muon[i]) {
        parts.push_back({"exp_avg_sq." + unit.parameters[i]->name(), unit.parameters[i],
                         unit.held(i),
                         StateValues(state.exp_avg_sq)
                             .narrow(state.squares_ranges[i].begin, state.ranges[i].size())});
      }
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
