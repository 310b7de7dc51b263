#include "plan/rank_memory.h"

namespace danlu::plan {
namespace {

/// A model that has the stage's layers and no others, and the stage in it.
struct Alone {
  Request request;
  arch::Stage stage;
};

Alone alone(const Request& request, const arch::Stage& stage) {
  Alone own{request, stage};
  // Layers may differ by their kind, or by the number that a pattern names.
  const bool differ = !request.model.experts.sparse_layer.empty() || !request.freeze.empty();
  if (differ) return own;
  int64_t layers = 0;
  for (arch::LayerRange& range : own.stage.chunks) {
    range = {layers, layers + range.end - range.first};
    layers = range.end;
  }
  own.request.model.num_layers = layers;
  return own;
}

}  // namespace

Elements elements_alone(const Request& request, const arch::Stage& stage) {
  const Alone own = alone(request, stage);
  return elements_of(own.request, own.stage);
}

Memory memory_alone(const Request& request, const arch::Stage& stage, int64_t index) {
  const Alone own = alone(request, stage);
  return memory_of(own.request, own.stage, schedule_of(request, stage, index));
}

double offloaded_bytes(const Request& request, const Memory& memory) {
  // Masters and moments of the elements that the gradients' shares are of: 4 bytes each there.
  const bool shares = request.sharding >= settings::Sharding::kState;
  const bool gradients_shared = request.sharding >= settings::Sharding::kGradients;
  const auto ranks = static_cast<double>(request.mesh.are_some_sharers() ? request.mesh.sharers
                                                                         : request.mesh.copies());
  const double elements =
      static_cast<double>(memory.gradients) / 4 / (shares && !gradients_shared ? ranks : 1);
  return 12 * elements;
}

}  // namespace danlu::plan
