// plan/expert_memory.h: bytes of one micro-batch in a layer's router and experts, on a rank.
#pragma once
#include <vector>

#include "plan/layer_memory.h"

namespace danlu::plan {

/// Bytes of the part between the norm before it and the residual after it: what layers/experts.cpp
/// keeps and makes.
struct ExpertBytes {
  int64_t kept = 0;
  /// At most beside all that the layer keeps, and beside the gradient of its output, while its
  /// backward runs.
  int64_t backward = 0;
  int64_t early = 0;    ///< the same before the experts' weights have gradients
  int64_t passing = 0;  ///< in a forward that keeps nothing, beside the hidden state
  int64_t later = 0;    ///< kept for weights' gradients that are made later
};
/// specs: of listing_of(). REQUIRES: the layer has experts.
ExpertBytes expert_bytes(const Request& request, const Uses& uses,
                         const std::vector<arch::ParamSpec>& specs, int64_t layer,
                         settings::LayerRecompute kind);
ExpertBytes passing_expert_bytes(const Request& request);

/// Whether the parameter is part of a router, of experts, or of what stands beside them.
bool is_of_experts(const arch::ParamSpec& spec);

}  // namespace danlu::plan
