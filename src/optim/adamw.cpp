#include "optim/adamw.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "base/error.h"
#include "optim/muon.h"

namespace danlu::optim {
namespace {

using Kind = settings::StateRule::Kind;

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

AdamW::AdamW(parallel::ParameterStore& store, const AdamWConfig& config, int64_t layers)
    : store_(store), config_(config), layers_(layers) {
  config_.validate();
  if (config_.turns) had_.resize(static_cast<size_t>(layers_));
  const at::NoGradGuard no_grad;
  for (const parallel::Unit& unit : store.units()) {
    UnitState& state = units_.emplace_back();
    state.first_parameter = parameters_.size();
    if (!unit.trainable) continue;
    for (size_t i = 0; i < unit.parameters.size(); ++i) {
      parameters_.push_back(unit.parameters[i]);
      state.ranges.push_back(unit.place_in_share(i));
      state.rules.push_back(settings::state_rule(config_, unit.parameters[i]->spec));
      state.is_plain &= state.rules.back().kind == Kind::kAdam;
      state.trained.push_back(trained_mask(*unit.parameters[i], unit.held(i)));
    }
    make_state(unit, state);
  }
  const parallel::Mesh& mesh = store_.mesh();
  settings_ = settings_of(parameters_, config_.groups,
                          {&mesh.cutting(mesh.shape().expert_axes()), &mesh.pipeline()});
}

void AdamW::make_state(const parallel::Unit& unit, UnitState& state) {
  if (!state.is_plain && is_in_files())
    throw InternalError("[optimizer] a matrix is updated at once, not in blocks of files");
  state.chunks = chunks_of(state.ranges);
  const auto zeros = [&](int64_t elements) {
    return state_memory(state, elements, unit.shard.options().dtype(at::kFloat));
  };
  int64_t avg = 0, squares = 0;
  for (size_t i = 0; i < state.ranges.size(); ++i) {
    const int64_t size = state.ranges[i].size();
    const auto next = [size](int64_t& end, bool has) {
      const int64_t begin = end;
      end += has ? size : 0;
      return Range{begin, end};
    };
    state.avg_ranges.push_back(next(avg, state.rules[i].has_avg));
    state.squares_ranges.push_back(next(squares, state.rules[i].has_squares));
  }
  if (state.is_plain) state.avg_ranges = state.squares_ranges = state.ranges;
  state.exp_avg = zeros(state.is_plain ? unit.share.size() : avg);
  state.exp_avg_sq = zeros(state.is_plain ? unit.share.size() : squares);
  make_wholes(unit, state);
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
  if (config_.turns && config_.turns->is_badam) state.exp_avg = state.exp_avg_sq = at::Tensor();
}

int64_t AdamW::turning_layer(size_t unit) const {
  const int64_t layer = store_.units()[unit].parameters.front()->spec.layer;
  return layer < layers_ ? layer : -1;
}

int64_t AdamW::update_of(const Parameter& parameter) const {
  const int64_t layer = parameter.spec.layer;
  // One without a turn is not updated.
  return config_.turns && layer >= 0 && layer < layers_
             ? std::max<int64_t>(had_[static_cast<size_t>(layer)], 1)
             : updates_;
}

bool AdamW::has_turn(size_t unit, int64_t turn) const {
  const int64_t layer = config_.turns ? turning_layer(unit) : -1;
  if (layer < 0) return true;
  const std::vector<int64_t> layers = settings::layers_in_turn(*config_.turns, turn, layers_);
  return std::find(layers.begin(), layers.end(), layer) != layers.end();
}

void AdamW::hold_moments_of(int64_t turn) {
  if (!config_.turns->is_badam || turn == held_turn_) return;
  held_turn_ = turn;
  for (size_t u = 0; u < units_.size(); ++u) {
    const parallel::Unit& unit = store_.units()[u];
    if (!unit.trainable) continue;
    UnitState& state = units_[u];
    state.exp_avg = state.exp_avg_sq = at::Tensor();
    if (!has_turn(u, turn)) continue;
    const auto options = unit.shard.options().dtype(at::kFloat);
    state.exp_avg = at::zeros({unit.share.size()}, options);
    state.exp_avg_sq = at::zeros({unit.share.size()}, options);
  }
}

void AdamW::take_turns(GradBuffer& gradients) {
  if (!config_.turns) return;
  const int64_t turn = config_.turns->turn_of(updates_);
  hold_moments_of(turn);
  std::vector<bool> rest;
  for (size_t u = 0; u < units_.size(); ++u)
    rest.push_back(store_.units()[u].trainable && !has_turn(u, turn));
  gradients.rest(rest);
}

void AdamW::make_wholes(const parallel::Unit& unit, UnitState& state) {
  state.wholes.resize(state.rules.size());
  const auto options = unit.shard.options().dtype(at::kFloat);
  for (size_t i = 0; i < state.rules.size(); ++i) {
    // Who holds nothing of a parameter does not update it.
    if (state.ranges[i].size() == 0) continue;
    for (const settings::WholeState& whole : state.rules[i].wholes) {
      Parameter place;
      place.spec = unit.parameters[i]->spec;
      place.spec.name = whole.kind + unit.parameters[i]->name();
      place.spec.shape = whole.shape;
      // Every rank of the tensor axis has it.
      place.rects = {{arch::matrix_of(whole.shape), store_.mesh().shape().tensor}};
      place.in_both_ends = unit.parameters[i]->in_both_ends;
      at::Tensor values = at::zeros({place.whole_numel()}, options).view(whole.shape);
      state.wholes[i].emplace(whole.kind, UnitState::Whole{std::move(place), std::move(values)});
    }
  }
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
    for (const auto& wholes : state.wholes)
      for (const auto& [kind, whole] : wholes) bytes += whole.values.nbytes();
  }
  return static_cast<int64_t>(bytes);
}

void AdamW::step(const GradBuffer& gradients, double lr, double grad_scale) {
  const at::NoGradGuard no_grad;
  if (before_update_) before_update_();
  ++updates_;
  if (config_.turns) {
    const int64_t turn = config_.turns->turn_of(updates_ - 1);
    const bool begins = config_.turns->turn_of(updates_ - 2) != turn || updates_ == 1;
    if (config_.turns->is_badam && begins) std::fill(had_.begin(), had_.end(), 0);
    for (const int64_t layer : settings::layers_in_turn(*config_.turns, turn, layers_))
      ++had_[static_cast<size_t>(layer)];
  }
  std::vector<AdamWScalars> scalars;
  for (size_t i = 0; i < settings_.size(); ++i) {
    ParameterSettings settings = settings_[i];
    if (parameters_[i]->fixed) settings.weight_decay = 0;  // decay_trained has it
    scalars.push_back(scalars_of(config_, settings, update_of(*parameters_[i]), lr, grad_scale));
  }
  for (size_t u = 0; u < units_.size(); ++u) {
    const UnitState& state = units_[u];
    if (!state.exp_avg.defined()) continue;
    if (config_.turns && !has_turn(u, config_.turns->turn_of(updates_ - 1))) continue;
    for (size_t i = 0; i < state.trained.size(); ++i) decay_trained(u, i, lr);
    const at::Tensor gradient = gradients.share(u).to(state.exp_avg.device());
    const std::span own(scalars.begin() + static_cast<std::ptrdiff_t>(state.first_parameter),
                        state.ranges.size());
    if (state.is_plain) {
      update(u, gradient, own);
    } else {
      update_each(u, gradient, own, lr, grad_scale);
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
    const Range &at = state.ranges[i], &avg = state.avg_ranges[i],
                &squares = state.squares_ranges[i];
    if (state.rules[i].kind != Kind::kAdam || at.size() == 0) continue;
    const auto part = [&](const at::Tensor& flat) {
      return flat.defined() ? flat.narrow(0, at.begin, at.size()) : flat;
    };
    ops::adamw_update({part(state.master), state.exp_avg.narrow(0, avg.begin, avg.size()),
                       state.exp_avg_sq.narrow(0, squares.begin, squares.size()), part(gradient),
                       state.is_own_master ? at::Tensor() : part(shard), part(state.low)},
                      chunks_of({{0, at.size()}}), scalars.subspan(i, 1));
  }
  update_wholes(unit, gradient, lr, grad_scale);
}

void AdamW::update_wholes(size_t unit, const at::Tensor& gradient, double lr, double grad_scale) {
  const UnitState& state = units_[unit];
  const parallel::Unit& of = store_.units()[unit];
  // Muon's directions, and gradients.
  const at::Tensor given = at::zeros({of.share.size()}, gradient.options());
  for (size_t i = 0; i < state.ranges.size(); ++i) {
    const Range &at = state.ranges[i], &avg = state.avg_ranges[i];
    if (state.rules[i].kind == Kind::kAdam || at.size() == 0) continue;
    const at::Tensor own = gradient.narrow(0, at.begin, at.size());
    given.narrow(0, at.begin, at.size())
        .copy_(state.rules[i].kind == Kind::kMuon
                   ? muon_direction(state.exp_avg.narrow(0, avg.begin, avg.size()), own, grad_scale,
                                    *config_.muon)
                   : own * grad_scale);
  }
  const WholeDirections wholes(store_, of, given);
  for (size_t i = 0; i < state.ranges.size(); ++i) {
    if (state.rules[i].kind == Kind::kAdam) continue;
    const at::Tensor whole = wholes.of(i);
    const Range& at = state.ranges[i];
    if (at.size() == 0) continue;
    at::Tensor change = change_of(unit, i, whole, given.narrow(0, at.begin, at.size()));
    const at::Tensor& trained = state.trained[i];
    if (trained.defined() && state.rules[i].kind != Kind::kMuon) change = change * trained;
    const ParameterSettings& own = settings_[state.first_parameter + i];
    const double rate = lr * own.lr_scale;
    const double decay = trained.defined() ? 0 : rate * own.weight_decay;
    const double scale = state.rules[i].kind == Kind::kMuon
                             ? settings::muon_scale(*config_.muon, whole.size(0), whole.size(1))
                             : 1;
    move(unit, at, 1.0 - decay, rate * scale, change);
  }
}

at::Tensor AdamW::change_of(size_t unit, size_t index, const at::Tensor& whole,
                            const at::Tensor& gradient) {
  const UnitState& state = units_[unit];
  const parallel::Unit& of = store_.units()[unit];
  const Parameter& parameter = *of.parameters[index];
  const Range held = of.held(index);
  const auto own = [&](const at::Tensor& all) {
    return parallel::cut_out(all, parameter.rects).view({-1}).narrow(0, held.begin, held.size());
  };
  switch (state.rules[index].kind) {
    case Kind::kMuon:
      return own(orthogonalised(whole, settings::newton_schulz_steps(*config_.muon)));
    case Kind::kLowRank: {
      StateByKind tensors;
      for (const auto& [kind, saved] : state.wholes[index]) tensors[kind] = saved.values;
      return own(low_rank_change(*config_.low_rank, config_, {parameter.name(), whole, updates_},
                                 tensors));
    }
    default:
      break;
  }
  const Range& avg = state.avg_ranges[index];
  at::Tensor first = state.exp_avg.narrow(0, avg.begin, avg.size());
  at::Tensor second = state.wholes[index].at("block_avg_sq.").values;
  first.mul_(config_.beta1).add_(gradient * (1 - config_.beta1));
  const int64_t blocks = second.numel();
  second.mul_(config_.beta2).add_(means_of_squares(whole, blocks) * (1 - config_.beta2));
  const auto update = static_cast<double>(updates_);
  const double bias1 = 1 - std::pow(config_.beta1, update),
               bias2 = 1 - std::pow(config_.beta2, update);
  const at::Tensor rates =
      ((second.sqrt() / std::sqrt(bias2)) + config_.eps).reciprocal().div_(bias1);
  return first *
         own(rates.view({-1, 1}).expand({blocks, whole.numel() / blocks}).reshape(whole.sizes()));
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
      const auto add_from = [&](const std::string& kind, const at::Tensor& flat, const Range& at) {
        parts.push_back({kind + unit.parameters[i]->name(), unit.parameters[i], unit.held(i),
                         StateValues(flat).narrow(at.begin, at.size())});
      };
      settings::StateRule rule = state.rules[i];
      if (!state.exp_avg.defined()) rule.has_avg = rule.has_squares = false;
      if (rule.has_avg)
        add_from(rule.kind == Kind::kMuon ? "momentum." : "exp_avg.", state.exp_avg,
                 state.avg_ranges[i]);
      if (rule.has_squares) add_from("exp_avg_sq.", state.exp_avg_sq, state.squares_ranges[i]);
      for (const auto& [kind, whole] : state.wholes[i]) {
        const int64_t size = whole.values.numel();
        parts.push_back({whole.place.name(),
                         &whole.place,
                         {0, size},
                         StateValues(whole.values.view({-1})),
                         unit.held(i).begin == 0});
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
  // The last update, whose turn may be over, is what the moments are of.
  if (config_.turns && updates > 0) hold_moments_of(config_.turns->turn_of(updates - 1));
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
    if (!store_.units()[u].trainable) continue;
    if (state.master.defined() && !state.is_own_master) {
      const at::Tensor& shard = store_.units()[u].shard;
      shard.copy_(rounded(state.master, shard.scalar_type()));
    }
    for (const device::FileTensor& file : state.files) file.sync_mapping();
    store_.publish(u);
  }
  store_.settle();
  updates_ = updates;
  for (size_t layer = 0; config_.turns && layer < had_.size(); ++layer) {
    had_[layer] =
        settings::updates_of_layer(*config_.turns, updates, static_cast<int64_t>(layer), layers_);
  }
}

}  // namespace danlu::optim
