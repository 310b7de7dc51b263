// plan/rollout_memory.h: what a rank needs while the model draws answers that it is to learn from.
#pragma once
#include "plan/memory.h"

namespace danlu::plan {

/// Bytes beside what the rank keeps between passes: weights that other ranks have and that are
/// brought for the rollout, keys and values of the answers that are drawn at a time, and the pass
/// that reads their prompts or gives their next logits. REQUIRES: request.rollout.
int64_t drawing_bytes(const Request& request, const arch::Stage& stage);

}  // namespace danlu::plan
