// optim/adamw.h: AdamW, and Muon for matrices where it is asked for, with f32 master weights and
// moments for parameters of any floating type.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "device/file_memory.h"
#include "optim/grad_buffer.h"
#include "optim/parameter.h"
#include "optim/state_values.h"

namespace danlu::optim {

/// A part of the optimizer's state for one parameter: "exp_avg.<param>", "exp_avg_sq.<param>",
/// "master.<param>"; of one that Muon updates "momentum.<param>" in the place of the first two.
struct StatePart {
  std::string name;
  const Parameter* parameter;
  Range held;          ///< of the elements of `parameter->rects`, joined
  StateValues values;  ///< those elements, which stay where they are
};

/// Decoupled weight decay, bias correction. A bf16 weight in the state's memory is half of its
/// master, and the state has the other half (ops::split_master): nobody else may change the weight.
/// Updates this rank's shares of a store's trained units.
/// With AdamWConfig::muon, parameters of takes_muon() are updated so: the momentum m of the
/// gradient gives a direction, Newton-Schulz steps orthogonalise the whole matrix of it, though
/// ranks hold parts (optim/muon.h), and w = (1 - lr decay) w - lr muon_scale() of that. Where ranks
/// share the state each orthogonalises what its share has a part of, else all do the same.
/// Not thread-safe; uses the engine's threads inside.
class AdamW {
 public:
  AdamW(parallel::ParameterStore& store, const AdamWConfig& config);

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
  /// f32 numbers of the state for an element of a parameter, its master aside.
  int64_t moments_of(const Parameter& parameter) const {
    return config_.muon && settings::takes_muon(parameter.spec) ? 1 : 2;
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
    /// Matrices that Muon updates have their momentum in exp_avg, and no elements in exp_avg_sq.
    at::Tensor exp_avg, exp_avg_sq;
    /// Where these are in files: exp_avg's, exp_avg_sq's and, unless it is the share, the master's.
    std::vector<device::FileTensor> files;
    std::vector<Range> ranges;          ///< of its parameters, in the share
    std::vector<Range> squares_ranges;  ///< the same in exp_avg_sq
    std::vector<bool> by_muon;          ///< of its parameters
    /// Ones where an element of the share is trained, zeros where it is fixed, of parameters of
    /// which a part is.
    std::vector<at::Tensor> trained;
    bool has_muon = false;
    std::vector<Chunk> chunks;
    size_t first_parameter;  ///< in parameters_
  };
  bool is_in_files() const { return !store_.keeping().state_in.empty(); }
  /// Zeros [elements] for the state, in one of its files where it is kept there.
  at::Tensor state_memory(UnitState& state, int64_t elements, const at::TensorOptions& options);
  void make_state(const parallel::Unit& unit, UnitState& state);
  void update(size_t unit, const at::Tensor& gradient, std::span<const AdamWScalars> scalars);
  /// Where Muon has some of the unit's parameters.
  void update_each(size_t unit, const at::Tensor& gradient, std::span<const AdamWScalars> scalars,
                   double lr, double grad_scale);
  void update_by_muon(size_t unit, const at::Tensor& gradient, double lr, double grad_scale);
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
  std::function<void()> before_update_;
};

}  // namespace danlu::optim
