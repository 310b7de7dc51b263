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
/// The patches that a patch sees in that block of the tower.
int64_t patches_seen(const Request& request, int64_t block);
/// The same of a block, and of what stands around the blocks. REQUIRES: the model has a tower.
LayerWork block_work(const Request& request, int64_t block);
double around_blocks(const Request& request);

}  // namespace danlu::plan
