// plan/rank_memory.h: memory of a stage's rank, worked out from the stage's own layers alone, so
// that a search over thousands of plans of deep models takes seconds.
#pragma once
#include "plan/machine.h"
#include "plan/memory.h"

namespace danlu::plan {

/// elements_of and memory_of of the stage. REQUIRES: layers are alike in shape, and patterns of the
/// request (adapters, freeze) tell none apart by its number.
Elements elements_alone(const Request& request, const arch::Stage& stage);
Memory memory_alone(const Request& request, const arch::Stage& stage, int64_t index);

/// What a rank's host keeps of the optimizer's state.
double offloaded_bytes(const Memory& memory);
/// Activations of a pass that a rank of the stage has elsewhere between forward and backward.
double away_bytes(const Request& request, const arch::Stage& stage);
/// What a node's host keeps of ranks of the stage that have activations of `in_flight` runs of
/// layers under way. `memory`: of such a rank.
double host_bytes(const Request& request, const Machine& machine, const arch::Stage& stage,
                  const Memory& memory, int64_t in_flight);

}  // namespace danlu::plan
