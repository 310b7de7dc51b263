// optim/adamw.h: AdamW, and other rules for matrices where they are asked for (Muon, GaLore,
// APOLLO, Adam-mini), with f32 master weights and moments for parameters of any floating type.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "device/file_memory.h"
#include "optim/grad_buffer.h"
#include "optim/low_rank.h"
#include "optim/parameter.h"
#include "optim/state_values.h"

namespace danlu::optim {

/// A part of the optimizer's state for one parameter: "exp_avg.<param>", "exp_avg_sq.<param>",
/// "master.<param>"; of one that another rule updates what settings::StateRule says in the place of
/// the first two.
struct StatePart {
  std::string name;
  const Parameter* parameter;  ///< or a tensor of the state in its place, with a shape of its own
  Range held;                  ///< of the elements of `parameter->rects`, joined
  StateValues values;          ///< those elements, which stay where they are
  bool is_saved = true;        ///< false: another rank that shares the state has the same
};

/// Decoupled weight decay, bias correction. A bf16 weight in the state's memory is half of its
/// master, and the state has the other half (ops::split_master): nobody else may change the weight.
/// Updates this rank's shares of a store's trained units.
/// With AdamWConfig::muon, parameters of takes_muon() are updated so: the momentum m of the
/// gradient gives a direction, Newton-Schulz steps orthogonalise the whole matrix of it, though
/// ranks hold parts (optim/muon.h), and w = (1 - lr decay) w - lr muon_scale() of that. Where ranks
/// share the state each orthogonalises what its share has a part of, else all do the same.
/// GaLore, APOLLO (optim/low_rank.h) and Adam-mini see whole matrices in the same way; what state
/// they have of a whole matrix is on every rank that holds a part of it.
/// Not thread-safe; uses the engine's threads inside.
class AdamW {
 public:
  /// layers: of the whole model, where they take turns (settings::LayerTurns).
  AdamW(parallel::ParameterStore& store, const AdamWConfig& config, int64_t layers = 0);

  /// Where layers take turns, says so to `gradients` for the next step. Before its zero().
  void take_turns(GradBuffer& gradients);
  /// One update from `gradients` (of the same store), each multiplied by `grad_scale` first. lr:
  /// the schedule's rate; a group's own factor comes on top. Parameters are written in place; what
  /// other ranks hold of them is there when a pass comes to it.
  void step(const GradBuffer& gradients, double lr, double grad_scale);

  /// Called at the start of every step, before anything is changed; empty: nothing is.
  void set_before_update(std::function<void()> wait) { before_update_ = std::move(wait); }

  int64_t updates() const { return updates_; }
  /// The trained parameters, unit by unit, and their settings.
  const std::vector<const Parameter*>& parameters() const { return parameters_; }
  const std::vector<ParameterSettings>& settings() const { return settings_; }
  /// f32 numbers of the state of a whole parameter, its master aside.
  int64_t state_numel(const Parameter& parameter) const {
    return settings::state_numel(config_, parameter.spec);
  }
  int64_t state_bytes() const;
  /// Whether ranks of the data axis hold different parts of the state.
  bool is_shared() const { return store_.sharding() != parallel::Sharding::kNone; }

  /// Views of what this rank holds of the state, empty parts left out. exact_weights: also the
  /// weights of f32 parameters as "master.<param>", for checkpoints whose model files hold them in
  /// another type.
  std::vector<StatePart> state(bool exact_weights) const;
  /// Reads state in and writes parameters from it; read(name, shape, rect, to) fills `to` [rows,
  /// cols] from a rectangle of the tensor of that name and shape, or returns false if there is
  /// none. Where a parameter was its own master and is none now, "<param>" is asked for the weight.
  /// Errors: ModelError naming a missing tensor; what read throws.
  using Reader = std::function<bool(const std::string& name, const std::vector<int64_t>& shape,
                                    const arch::Rect& rect, const at::Tensor& to)>;
  void load_state(const Reader& read, int64_t updates);

 private:
  struct UnitState {
    at::Tensor master;  ///< undefined: the unit's share and `low` hold it
    at::Tensor low;
    bool is_own_master = false;  ///< the master is the unit's share itself, being f32 and there
    /// Moments of parameters that have them there, one after the other (avg_ranges,
    /// squares_ranges).
    at::Tensor exp_avg, exp_avg_sq;
    /// Where these are in files: exp_avg's, exp_avg_sq's and, unless it is the share, the master's.
    std::vector<device::FileTensor> files;
    std::vector<Range> ranges;                      ///< of its parameters, in the share
    std::vector<Range> avg_ranges, squares_ranges;  ///< in exp_avg and exp_avg_sq
    std::vector<settings::StateRule> rules;         ///< of its parameters
    /// State of whole parameters of which this rank holds a part; one entry for each parameter.
    struct Whole {
      Parameter place;  ///< as which it is saved
      at::Tensor values;
    };
    std::vector<std::map<std::string, Whole>> wholes;
    /// Ones where an element of the share is trained, zeros where it is fixed, of parameters of
    /// which a part is.
    std::vector<at::Tensor> trained;
    bool is_plain = true;  ///< AdamW has all its parameters
    std::vector<Chunk> chunks;
    size_t first_parameter;  ///< in parameters_
  };
  bool is_in_files() const { return !store_.keeping().state_in.empty(); }
  /// Zeros [elements] for the state, in one of its files where it is kept there.
  at::Tensor state_memory(UnitState& state, int64_t elements, const at::TensorOptions& options);
  void make_state(const parallel::Unit& unit, UnitState& state);
  void make_wholes(const parallel::Unit& unit, UnitState& state);
  /// The layer that a unit is of, where it takes turns; else -1.
  int64_t turning_layer(size_t unit) const;
  bool has_turn(size_t unit, int64_t turn) const;
  /// The update that the parameter has now, which is the one of its layer where it takes turns.
  int64_t update_of(const Parameter& parameter) const;
  /// BAdam's moments, which are there for one turn.
  void hold_moments_of(int64_t turn);
  void update(size_t unit, const at::Tensor& gradient, std::span<const AdamWScalars> scalars);
  /// Where another rule has some of the unit's parameters.
  void update_each(size_t unit, const at::Tensor& gradient, std::span<const AdamWScalars> scalars,
                   double lr, double grad_scale);
  void update_wholes(size_t unit, const at::Tensor& gradient, double lr, double grad_scale);
  /// What the rate is multiplied with and subtracted from this rank's elements of parameter
  /// `index`, whose whole is `whole` (of directions or gradients).
  at::Tensor change_of(size_t unit, size_t index, const at::Tensor& whole,
                       const at::Tensor& gradient);
  /// Weight decay of a parameter of which a part is fixed; the update then takes none.
  void decay_trained(size_t unit, size_t index, double lr);
  /// master = keep master - step change, of elements `at` of the share; the weight follows.
  void move(size_t unit, const Range& at, double keep, double step, const at::Tensor& change);
  /// Changes masters in place, f32; the weight follows.
  void change_masters(size_t unit, const Range& at,
                      const std::function<void(const at::Tensor& masters)>& change);

  parallel::ParameterStore& store_;
  AdamWConfig config_;
  std::vector<const Parameter*> parameters_;
  std::vector<ParameterSettings> settings_;
  std::vector<UnitState> units_;  ///< as the store's; without tensors where nothing is trained
  int64_t updates_ = 0;
  int64_t layers_ = 0;        ///< of the model
  int64_t held_turn_ = -1;    ///< whose moments BAdam has
  std::vector<int64_t> had_;  ///< by layer, where they take turns: settings::updates_of_layer
  std::function<void()> before_update_;
};

}  // namespace danlu::optim
