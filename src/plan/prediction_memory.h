// plan/prediction_memory.h: bytes of one micro-batch in a layer that predicts further ahead, on a
// rank of the last stage.
#pragma once
#include <vector>

#include "plan/layer_memory.h"

namespace danlu::plan {

/// Bytes of the layer that predicts `depth` >= 1 tokens further (layers/prediction.h), with its
/// norms, the matrix before it, and the loss after it, whose gradient is made at once.
/// kind: how its block is recomputed. specs: of listing_of().
LayerBytes prediction_bytes(const Request& request, const Uses& uses,
                            const std::vector<arch::ParamSpec>& specs, int64_t depth,
                            settings::LayerRecompute kind);

}  // namespace danlu::plan
