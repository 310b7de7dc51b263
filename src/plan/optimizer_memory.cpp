#include "plan/optimizer_memory.h"

#include <algorithm>

namespace danlu::plan {

using settings::Sharding;

namespace {

/// What the update of `each` matrices like this one, or of their adapters, takes.
void add_muon(const Request& request, const arch::ParamSpec& spec, const Use& use, int64_t each,
              Elements& elements) {
  const int64_t rows = spec.shape[0], cols = spec.shape[1];
  const auto add = [&](int64_t one, int64_t other) {
    const int64_t small = std::min(one, other);
    // Operands, a product and one on its way; two squares. Of parts, also the whole.
    const int64_t copies = request.mesh.tensor > 1 ? 4 : 3;
    elements.largest_update =
        std::max(elements.largest_update, copies * one * other + 2 * small * small);
    const auto side = static_cast<double>(small);
    elements.muon_flops += static_cast<double>(each) * side * side *
                           (4 * static_cast<double>(std::max(one, other)) + 2 * side);
  };
  if (use.is_trained) add(rows, cols);
  if (use.adapter_rank == 0) return;
  add(use.adapter_rank, cols);
  add(rows, use.adapter_rank);
}

/// What the update of a matrix in a subspace takes: its gradient, the change, and while the
/// subspace is chosen as many singular vectors as the matrix has.
void add_low_rank(const Request& request, const arch::ParamSpec& spec, Elements& elements) {
  const int64_t rows = spec.shape[0], cols = spec.shape[1];
  const int64_t small = std::min(rows, cols);
  const bool decomposes = !request.adamw.low_rank->draws;
  const int64_t vectors = decomposes ? rows * cols + small * (rows + cols) : 0;
  elements.largest_update = std::max(elements.largest_update, 2 * rows * cols + vectors);
}

}  // namespace

void count_wholes(const Request& request, const arch::ParamSpec& spec, const Use& use, int64_t each,
                  int64_t trained, Elements& elements) {
  using Kind = settings::StateRule::Kind;
  const settings::StateRule rule = settings::state_rule(request.adamw, spec);
  if (rule.kind == Kind::kAdam || trained == 0) return;
  if (rule.kind == Kind::kMuon) add_muon(request, spec, use, each, elements);
  if (rule.kind == Kind::kLowRank) add_low_rank(request, spec, elements);
  int64_t fewer = (rule.has_avg ? 1 : 2) * trained;
  // On every rank of the tensor axis.
  for (const settings::WholeState& whole : rule.wholes) {
    int64_t numbers = each;
    for (const int64_t size : whole.shape) numbers *= size;
    fewer -= numbers;
  }
  const auto add = [&](Held& held) {
    held.by_wholes += trained;
    held.fewer += fewer;
  };
  add(elements);
  if (spec.expert >= 0) add(elements.experts);
}

int64_t update_bytes(const Request& request, const Elements& elements) {
  if (elements.by_wholes == 0) return 0;
  int64_t most = 0;
  for (const auto& [place, unit] : elements.by_place) most = std::max(most, unit.trained);
  const bool shares = request.sharding >= Sharding::kState && request.sharers() > 1;
  return 4 * (most + (shares ? most / request.sharers() : 0) + elements.largest_update);
}

void leave_one_layer(const Request& request, const Elements& elements, Memory& memory) {
  if (!request.adamw.turns || !request.adamw.turns->is_badam) return;
  int64_t largest = 0;
  for (const auto& [place, unit] : elements.by_place) largest = std::max(largest, unit.trained);
  memory.moments = std::min(memory.moments, request.sharding >= Sharding::kState
                                                ? up(8 * largest, request.sharers())
                                                : 8 * largest);
  if (request.sharding < Sharding::kGradients)
    memory.gradients = std::min(memory.gradients, 2 * 4 * largest);
}

}  // namespace danlu::plan
