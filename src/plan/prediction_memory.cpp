#include "plan/prediction_memory.h"

#include <algorithm>

namespace danlu::plan {

LayerBytes prediction_bytes(const Request& request, const Uses& uses,
                            const std::vector<arch::ParamSpec>& specs, int64_t depth,
                            settings::LayerRecompute kind) {
  const int64_t layer = request.model.num_layers + depth - 1;
  const Sizes of = layer_sizes(request);
  LayerBytes bytes = layer_bytes(request, uses, specs, layer, kind);
  if (kind == settings::LayerRecompute::kFull) {  // its input alone, and all of it made again
    bytes.backward += bytes.kept;
    bytes.early += bytes.kept;
    bytes.kept = of.rows;
  }
  // Norms keep what they read: a token's row, and what the block gave. What the first of them reads
  // beside it the model's own norm keeps too, or gave. The matrix keeps this rank's columns of
  // both.
  const int64_t joined = 2 * of.inside / request.mesh.tensor;
  bytes.kept += 2 * of.rows + 3 * of.stats + joined;
  // The gradient of what the head was given.
  bytes.kept += of.inside;
  // The two halves together, and their gradients.
  bytes.backward = std::max(bytes.backward, 2 * of.inside + joined);
  bytes.gone = 0;
  return bytes;
}

}  // namespace danlu::plan
