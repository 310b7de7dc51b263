// parallel/store.h: the memory of parameters in training. It is divided into units, and with ZeRO
// the ranks that hold the same parameters each keep a share of every unit.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "parallel/background.h"
#include "parallel/flat_layout.h"
#include "parallel/mesh.h"
#include "parallel/parameter.h"
#include "settings/sharing.h"

namespace danlu::parallel {

using settings::Keeping, settings::Sharding;

/// Parameters that are gathered, reduced and updated together. They have one place in the network,
/// one dtype and the same axes on which they are copied, and are all trained or all frozen.
struct Unit {
  int64_t place = 0;  ///< in the chain that a pass goes through (arch/pipeline.h)
  bool trainable = true;
  std::vector<Parameter*> parameters;  ///< of the network; what they hold are views of `flat`
  FlatLayout layout{{}};
  /// Its one parameter is a table that the first and the last stage of a pipeline both hold.
  bool in_both_ends = false;
  /// It is the last stage's copy of such a table; the first stage's is the one that is saved and
  /// counted.
  bool is_copy = false;
  /// The axes (tensor excepted) along which ranks hold the same unit, and so may share it.
  arch::Axes copied_on = ModelGroups::kEveryCopy;
  Range share;       ///< the elements that this rank keeps and updates
  at::Tensor flat;   ///< all elements; if parameters are shared it has memory only while it is used
  at::Tensor shard;  ///< the elements of `share`: a view of `flat`, or memory of its own

  /// The elements of parameter `index` that lie in the share, counted from the parameter's first.
  Range held(size_t index) const { return overlap_in(layout.range(index), share); }
  /// The same elements, counted from the share's first.
  Range place_in_share(size_t index) const { return overlap_in(share, layout.range(index)); }
  std::string name() const { return parameters.front()->name(); }
};

/// The places of the network that this rank has.
struct Places {
  struct Run {
    int64_t first = 0, last = 0;
    /// Without places, a pass gives what it takes.
    bool is_empty() const { return last < first; }
    bool has(int64_t place) const { return place >= first && place <= last; }
  };
  std::vector<Run> runs;    ///< one for each chunk of the stage; ascending
  int64_t last_of_all = 0;  ///< the last place of the whole model
  /// Places whose gradients are found without their weights, such as an embedding's.
  std::vector<int64_t> unread_in_backward = {0};
};

/// Has parameters in memory where a pass needs them. Passes tell it where in the network they are,
/// because with ZeRO-3 parameters are gathered shortly before their use and freed after it. Not
/// thread-safe.
class ParameterStore {
 public:
  /// `mesh` outlives the store. Where no other rank holds the same, nothing is shared.
  ParameterStore(const Mesh& mesh, const Keeping& keeping, const Places& places);

  const Mesh& mesh() const { return mesh_; }
  Sharding sharding() const { return sharding_; }
  const Keeping& keeping() const { return keeping_; }
  bool shares_parameters() const { return sharding_ == Sharding::kParameters; }
  /// Moves parameters into units. A parameter that is neither trained nor shared stays where it is.
  /// The pointers stay valid, but each parameter gets a new leaf tensor. REQUIRES: a parameter that
  /// is tied to another stands after it. keeps_values: false leaves the values to fill().
  void lay_out(const std::vector<Parameter*>& parameters, bool keeps_values);
  const std::vector<Unit>& units() const { return units_; }
  std::vector<Unit>& units() { return units_; }

  /// Calls fill() while the parameters of a place have memory, then keeps this rank's share of what
  /// it wrote there.
  void fill(int64_t place, const std::function<void()>& fill);
  /// Calls use() while the parameters of a place are there. Collective if parameters are shared.
  void with(int64_t place, const std::function<void()>& use);

  /// Sets groups of places that are recomputed together: the backward needs all parameters of a
  /// group when it reaches the output of the last place. Ascending, without overlap, the same on
  /// every rank of the data axis. A place in no group is a group by itself.
  void join_in_backward(std::vector<Places::Run> joint) { joint_ = std::move(joint); }

  /// The unit that holds the parameter of that name; empty if none does.
  std::optional<size_t> unit_of(const std::string& name) const;
  /// Where in the unit the elements of that parameter lie. REQUIRES: it is in the unit.
  Range range_of(size_t unit, const std::string& name) const;
  /// All elements of a shared unit, gathered into new memory on the first rank that shares it;
  /// undefined on the others. May run beside passes, over groups that they do not use, until the
  /// next update. Collective.
  at::Tensor gathered(size_t unit, const ModelGroups& groups) const;

  /// Before the first pass of a step. Frees what a failed step has left in use.
  void begin_step();
  /// Before and after the forward of a place, on every rank of the data axis alike. keeps: a
  /// backward of this pass follows.
  void before_forward(int64_t place);
  void after_forward(int64_t place, bool keeps);
  /// One backward ends before the next begins; forwards may come between. place: the last of a run.
  void begin_backward(int64_t place);
  /// The gradient of the output of `place` is there, so later places have their gradients.
  void reach_backward(int64_t place);
  void end_backward();
  /// Takes part in the exchanges of a pass that other ranks of the data axis make, when this rank
  /// has no micro-batch for it. run: the number of the chunk. keeps: as after_forward.
  void forward_idly(size_t run, bool keeps);
  void backward_idly(size_t run);

  /// Hears of trained units. `before`: a backward has come to a place that needs the unit, which
  /// for a tied table happens twice. `after`: all gradients of the unit are there.
  struct Listener {
    std::function<void(size_t unit)> before, after;
  };
  void listen(Listener listener) { listener_ = std::move(listener); }

  /// After an update: sends this rank's share of a unit and receives the others', in the
  /// background.
  void publish(size_t unit);
  /// Waits until everything that was published has arrived.
  void settle();

  Background& background() { return *background_; }

  /// Bytes of parameters that this rank keeps between passes.
  int64_t kept_bytes() const;

 private:
  struct State {
    int64_t users = 0;
    Background::Job coming;
  };
  void lay_out_unit(Unit unit, bool keeps_values);
  /// Memory that lasts as long as the store. Where a file holds it, it begins as zeros.
  at::Tensor kept_memory(int64_t elements, const at::TensorOptions& options) const;
  void allocate(Unit& unit);
  void free(Unit& unit);
  void keep_share(Unit& unit);
  void gather(size_t unit);
  void prefetch(size_t unit);
  void unshard(size_t unit);
  void reshard(size_t unit);
  void prefetch_place(int64_t place);
  void need_in_backward(int64_t place);
  void announce(int64_t place) const;
  void after_backward(int64_t place);
  /// The first place of the group that `place` is recomputed with (join_in_backward).
  int64_t first_with(int64_t place) const;
  const Places::Run& run_of(int64_t place) const;
  bool is_read_in_backward(int64_t place) const;
  /// Has the parameters that the backward reads after `place` on their way, if it gets there.
  void prefetch_behind(int64_t place);
  /// The place at which the backward of a run ends; after its last place if it has no backward.
  int64_t lowest_of(const Places::Run& run) const {
    return run.first == 0 ? first_with(first_trained_) : run.first;
  }

  const Mesh& mesh_;
  Keeping keeping_;
  Sharding sharding_;  ///< kNone on one rank
  Places places_;
  std::vector<Unit> units_;
  std::vector<State> states_;
  std::map<std::string, size_t> by_name_;
  /// The units that a pass needs at each place: those of the place, and those that a parameter
  /// there is tied to.
  std::vector<std::vector<size_t>> needed_;
  std::vector<Places::Run> joint_;
  int64_t first_trained_;  ///< the first place with a trained unit; after the last place if none
  int64_t backward_at_ = -1;
  Listener listener_;
  struct Memory {
    at::DataPtr pointer;
    size_t bytes;
  };
  std::vector<Memory> spare_;  ///< of freed units, for the next ones
  std::unique_ptr<Background> background_;
};

}  // namespace danlu::parallel
