// plan/layer_work.h: the operations of a layer's forward pass on a rank.
#pragma once
#include "plan/memory.h"

namespace danlu::plan {

/// Operations of a rank's part of one layer and micro-batch. A multiplication and a sum are two;
/// masked keys are left out.
struct LayerWork {
  double products = 0, down = 0, core = 0;  ///< matrices; of them the last; scores and their sums
  double norms = 0, activation = 0;

  /// What runs again of a layer that is recomputed so.
  double of(settings::LayerRecompute kind) const;
};
LayerWork work_of(const Request& request, int64_t layer);

}  // namespace danlu::plan
