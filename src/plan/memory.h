// plan/memory.h: what a rank keeps in training, in bytes, from the model's parameters and how the
// job shares them.
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "arch/layer_kind.h"
#include "plan/request.h"

namespace danlu::plan {

/// Elements that a rank holds.
struct Held {
  int64_t all = 0, trained = 0;
  int64_t by_wholes =
      0;               ///< the part of `trained` that is updated by whole matrices (Muon, GaLore)
  int64_t fewer = 0;   ///< f32 numbers of the optimizer's state fewer than two for an element
  int64_t in_nf4 = 0;  ///< the part of `all` that is kept in NF4
  int64_t read_in_backward = 0;             ///< elements of weights that a backward reads too
  std::vector<int64_t> read_in_last_place;  ///< by chunk: that part of them in its last place
};
/// The elements of one rank: the first of the tensor axis, which has no fewer than others.
struct Elements : Held {
  Held experts;               ///< the part of the above that lies in experts
  int64_t tied_in_stage = 0;  ///< of a table that embedding and head of the stage share
  int64_t tied = 0;           ///< trained, of a table that both ends of a pipeline hold
  int64_t trained_ahead = 0;  ///< of layers that predict further ahead
  int64_t products = 0;       ///< of matrices that hidden states are multiplied by
  /// Numbers in f32 that the largest of these matrices takes in an update, and the operations that
  /// one step of Muon's iteration takes for all.
  int64_t largest_update = 0;
  double muon_flops = 0;
  /// Elements of one place. `all` and `trained` include its experts, which `experts` and
  /// `trained_experts` give by themselves; `in_nf4` leaves them out.
  struct Unit {
    int64_t all = 0, trained = 0, experts = 0, trained_experts = 0, in_nf4 = 0;
  };
  std::map<int64_t, Unit> by_place = {};
  std::map<int64_t, int64_t> trained_by_place = {};  ///< as parallel::Unit::place

  Held without_experts() const;
};
/// How many of the trained elements a rank keeps where ranks share them: numbers, not bytes.
double trained_elements_kept(const Request& request, const Elements& elements);
/// Errors: UsageError as arch::require_divides.
Elements elements_of(const Request& request, const arch::Stage& stage);

/// A pass of one micro-batch through one layer, as kinds of layers are asked for its cost.
arch::LayerPass pass_of(const Request& request);

/// The share of the stage's layers that are recomputed in that way; 0 without layers.
double recomputed_share(const Request& request, const arch::Stage& stage,
                        settings::LayerRecompute kind);

struct Memory {
  int64_t weights = 0, gradients = 0, masters = 0, moments = 0;  ///< between passes
  int64_t activations = 0;  ///< kept for backwards, of all micro-batches under way
  /// What exists beside `activations` at the peak of a step, for the layer or head that computes
  /// then. It is below 0 if more activations have been freed by then.
  int64_t working = 0;
  /// Gradients that have no memory yet at that peak. They get it during the first backward of a
  /// step, while activations are freed.
  int64_t gradients_to_come = 0;
  int64_t communication = 0;  ///< gathered parameters, gradients and exchanges under way
  /// While answers are drawn, or a critic learns from them, which is before the step's passes.
  int64_t rollout = 0;
  int64_t update = 0;     ///< while whole matrices are updated (Muon, GaLore), after the passes
  int64_t allocator = 0;  ///< what devices' allocators lose to rounding and gaps
  int64_t updated = 0;    ///< elements whose optimizer state the rank, or its host, keeps
  int64_t fewer = 0;      ///< numbers of that state fewer than two for an element

  int64_t kept() const { return weights + gradients + masters + moments; }
  int64_t pass() const { return activations + working + communication - gradients_to_come; }
  int64_t beside_passes() const { return std::max(rollout, update); }
  int64_t total() const { return kept() + std::max(pass(), beside_passes()) + allocator; }
  /// The memory as it is shown: activations that are freed by that moment are subtracted, so no
  /// part is negative, and what a rollout or the update needs beyond passes is working memory.
  Memory in_parts() const;
};

/// The memory of one rank of `stage`, whose passes follow `schedule`. It assumes kernels that keep
/// no attention scores, as the CPU's do.
Memory memory_of(const Request& request, const arch::Stage& stage, const arch::Schedule& schedule);

struct StageMemory {
  arch::Stage stage;
  Memory memory;
};
/// The memory of each stage. Errors: UsageError for sizes that do not go together.
std::vector<StageMemory> memory_by_stage(const Request& request);
/// What stage `index` does in a step.
arch::Schedule schedule_of(const Request& request, const arch::Stage& stage, int64_t index);

}  // namespace danlu::plan
