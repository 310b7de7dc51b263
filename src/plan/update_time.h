// plan/update_time.h: what ends a step after its passes.
#pragma once
#include "plan/machine.h"
#include "plan/memory.h"

namespace danlu::plan {

/// Seconds of the optimizer's update. Every rank reads its gradients twice (their norm, the
/// update), masters and moments once, and writes those and the weights. Offloaded, gradients go to
/// the host and weights come back; all devices of a node share its memory.
double update_seconds(const Request& request, const Machine& machine, const Elements& elements);

/// Seconds of a table at both ends, whose gradient is summed once a step: what each rank keeps of
/// the sum. `last`: of the last stage.
double tied_seconds(const Request& request, const Machine& machine, const Elements& last);

}  // namespace danlu::plan
