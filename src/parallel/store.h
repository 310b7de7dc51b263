// parallel/store.h: who owns the memory of parameters in training: units, of which the ranks of the
// data axis may each keep a share.
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

/// Parameters that are gathered, reduced and updated together: those of one place in the network
/// that are trained, or those that are not.
struct Unit {
  int64_t place = 0;  ///< in the chain that a pass goes through
  bool trainable = true;
  std::vector<Parameter*> parameters;  ///< in the network; their tensors are views of `flat`
  FlatLayout layout{{}};
  bool in_both_ends = false;                       ///< as its only parameter
  arch::Axes copied_on = ModelGroups::kEveryCopy;  ///< beside the tensor axis; who shares it
  Range share;       ///< the elements that this rank keeps and updates
  at::Tensor flat;   ///< all; without memory between uses where parameters are shared
  at::Tensor shard;  ///< the elements of `share`: a view of `flat`, or memory of its own

  /// The part of a parameter that lies in the share: counted from the parameter's first element,
  /// and from the share's.
  Range held(size_t index) const { return overlap_in(layout.range(index), share); }
  Range place_in_share(size_t index) const { return overlap_in(share, layout.range(index)); }
  std::string name() const { return parameters.front()->name(); }
  /// The first stage's is the one that counts, and is written.
  bool is_copy() const { return in_both_ends && place > 0; }
};

/// Places of the network that are here, and the last of all.
struct Places {
  struct Run {
    int64_t first = 0, last = 0;
    bool is_empty() const { return last < first; }  ///< what comes goes on as it is
    bool has(int64_t place) const { return place >= first && place <= last; }
  };
  std::vector<Run> runs;  ///< what a pass goes through at a time; ascending
  int64_t last_of_all = 0;
};

/// Not thread-safe. A pass tells it where in the network it is; parameters are then there.
class ParameterStore {
 public:
  /// `mesh` outlives the store. Sharding does nothing on one rank.
  ParameterStore(const Mesh& mesh, const Keeping& keeping, const Places& places);

  const Mesh& mesh() const { return mesh_; }
  Sharding sharding() const { return sharding_; }
  const Keeping& keeping() const { return keeping_; }
  bool shares_parameters() const { return sharding_ == Sharding::kParameters; }
  /// Moves parameters into units, by place and by whether they are trained; what is neither trained
  /// nor shared stays where it is. Pointers stay valid; leaves are new ones. Those that another is
  /// tied to come first. copies: what they hold is kept, else they are to be filled.
  void lay_out(const std::vector<Parameter*>& parameters, bool copies);
  const std::vector<Unit>& units() const { return units_; }
  std::vector<Unit>& units() { return units_; }

  /// fill() with memory for everything of a place, which is written there; then the share is kept.
  void fill(int64_t place, const std::function<void()>& fill);
  /// use() with everything of a place there. Collective where parameters are shared.
  void with(int64_t place, const std::function<void()>& use);

  /// Places of a run whose backward asks for all of their parameters at once, at the gradient of
  /// what the last gives. Ascending, without overlap, on every rank of the data axis alike; others
  /// are for themselves.
  void join_in_backward(std::vector<Places::Run> joint) { joint_ = std::move(joint); }

  /// The unit that holds the parameter of that name, if one does.
  std::optional<size_t> unit_of(const std::string& name) const;
  /// Where in that unit its elements lie. REQUIRES: it is there.
  Range range_of(size_t unit, const std::string& name) const;
  /// All of a shared unit, put together in memory of its own by the first of those who share it:
  /// beside passes too, with groups of its own, until the next update. Undefined on the others.
  /// Collective.
  at::Tensor gathered(size_t unit, const ModelGroups& groups) const;

  /// Before the first pass of a step: lets go what a step that failed has left there.
  void begin_step();
  /// The borders of a pass, on every rank of the data axis alike. keeps: its backward follows.
  void before_forward(int64_t place);
  void after_forward(int64_t place, bool keeps);
  /// Backwards come one after the other; forwards may come between them. place: the last of a run.
  void begin_backward(int64_t place);
  /// The gradient of what `place` gives is there: those behind it have theirs.
  void reach_backward(int64_t place);
  void end_backward();
  /// A pass of nothing through a run, beside those of other ranks; keeps: as after_forward.
  void forward_idly(size_t run, bool keeps);
  void backward_idly(size_t run);

  /// Told of trained units when a backward comes to a place that needs them (twice of what is
  /// tied), and when their gradients are there.
  struct Listener {
    std::function<void(size_t unit)> before, after;
  };
  void listen(Listener listener) { listener_ = std::move(listener); }

  /// After an update of shares: everybody gets everybody's, before it is next needed.
  void publish(size_t unit);
  /// Waits for what was published.
  void settle();

  Background& background() { return *background_; }

  /// Bytes that this rank keeps of parameters, between passes.
  int64_t kept_bytes() const;

 private:
  struct State {
    int64_t users = 0;
    Background::Job coming;
  };
  void lay_out_unit(Unit unit, bool copies);
  /// Memory that lasts as long as the store, of zeros where it is a file's.
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
  /// The first place that is needed where `place` is.
  int64_t first_with(int64_t place) const;
  const Places::Run& run_of(int64_t place) const;
  /// The place of the run where its backward ends; behind its last: there is none.
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
  /// Units that a pass needs at each place: its own, and what its parameters are tied to.
  std::vector<std::vector<size_t>> needed_;
  std::vector<Places::Run> joint_;
  int64_t first_trained_;  ///< place; behind the last of all: none
  int64_t backward_at_ = -1;
  Listener listener_;
  struct Memory {
    at::DataPtr pointer;
    size_t bytes;
  };
  std::vector<Memory> spare_;  ///< of units that were let go, to use again
  std::unique_ptr<Background> background_;
};

}  // namespace danlu::parallel
