#include "plan/rank_memory.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "arch/gated_delta.h"

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
  const bool differ = !request.model.own_kinds.empty() || request.model.vision ||
                      !request.freeze.empty() || arch::has_gated_delta(request.model);
  if (differ || stage.layers().empty()) return own;
  own.request.model.predicts_ahead &= stage.has_head();
  own.stage.chain.layers = static_cast<int64_t>(stage.layers().size());
  int64_t layers = 0;
  std::vector<bool> sparse;
  for (int64_t chunk = 0; chunk < stage.num_chunks(); ++chunk) {
    const arch::LayerRange range = stage.layers_of(chunk);
    const int64_t first = own.stage.chain.layer(layers);
    layers += range.end - range.first;
    for (int64_t layer = range.first; layer < range.end; ++layer)
      sparse.push_back(request.model.is_sparse(layer));
    own.stage.chunks[static_cast<size_t>(chunk)] = {
        stage.embeds_at(chunk) ? own.stage.chain.embedding() : first,
        stage.ends_at(chunk) ? own.stage.chain.size() : own.stage.chain.layer(layers)};
  }
  own.request.model.num_layers = layers;
  if (request.model.has_experts()) own.request.model.experts.sparse_layer = std::move(sparse);
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

double offloaded_bytes(const Memory& memory) {
  return 12 * static_cast<double>(memory.updated);  // a master and two moments, 4 bytes each
}

double away_bytes(const Request& request, const arch::Stage& stage) {
  if (request.offload.to == settings::OffloadTo::kNone) return 0;
  const Alone own = alone(request, stage);
  // One forward alone shows what it keeps, here and there.
  arch::Schedule forward;
  for (int64_t chunk = 0; chunk < stage.num_chunks(); ++chunk)
    forward.push_back({arch::Work::kForward, 0, chunk});
  Request here = own.request;
  here.offload = {};
  const auto kept = [&](const Request& one) {
    return static_cast<double>(memory_of(one, own.stage, forward).activations);
  };
  return std::max(0.0, kept(here) - kept(own.request));
}

double host_bytes(const Request& request, const Machine& machine, const arch::Stage& stage,
                  const Memory& memory, int64_t in_flight) {
  double bytes = request.state_in_files ? offloaded_bytes(memory) : 0;
  if (request.offload.to == settings::OffloadTo::kHost && in_flight > 0)
    bytes += away_bytes(request, stage) * static_cast<double>(in_flight) /
             static_cast<double>(stage.num_chunks());
  return bytes * static_cast<double>(std::min(machine.devices_per_node, request.mesh.size()));
}

}  // namespace danlu::plan
