#include "plan/update_time.h"

#include <algorithm>

#include "plan/traffic.h"

namespace danlu::plan {

using settings::Sharding;

namespace {

/// Updates of whole matrices, Muon's iteration among them; subspaces are chosen too seldom to
/// count. Where ranks share the state each has about its share of the matrices, whose directions
/// all of them gather.
double orthogonalising_seconds(const Request& request, const Machine& machine,
                               const Elements& elements) {
  if (elements.by_wholes == 0) return 0;
  const bool shares = request.sharding >= Sharding::kState && request.sharers() > 1;
  const double ranks = shares ? static_cast<double>(request.sharers()) : 1;
  const double steps = request.adamw.muon ? static_cast<double>(request.adamw.muon->num_steps) : 0;
  const double flops = elements.muon_flops * steps / ranks;
  const double bytes = 4 * static_cast<double>(elements.by_wholes);
  const double gathered = shares ? machine.path(request.sharers(), request.mesh.tensor)
                                       .seconds(bytes * (ranks - 1) / ranks)
                                 : 0;
  const double joined = request.mesh.tensor > 1
                            ? 2 * machine.path(request.mesh.tensor, 1)
                                      .seconds(bytes * static_cast<double>(request.mesh.tensor - 1))
                            : 0;
  return flops / (machine.f32_flops * machine.reachable) + gathered + joined;
}

}  // namespace

double update_seconds(const Request& request, const Machine& machine, const Elements& elements) {
  const int64_t world = request.mesh.size();
  const bool shares = request.sharding >= Sharding::kState;
  const double updated =
      shares ? trained_elements_kept(request, elements) : static_cast<double>(elements.trained);
  const auto width = static_cast<double>(request.element_bytes());
  // Moments, and masters: f32 weights themselves, or with the half that a bf16 weight is.
  const bool are_weights = request.master_bytes() < 4;
  const double moments = 8 - (elements.fewer != 0 ? 4 * static_cast<double>(elements.fewer) /
                                                        static_cast<double>(elements.trained)
                                                  : 0);
  const double state = moments + 4, written = state + (are_weights ? 0 : width);
  const Path all = machine.path(world, 1);
  const double agreed = world > 1 ? 2 * all.seconds(4) : 0;
  if (!request.state_in_files)
    return agreed + updated * (8 + state + written) / machine.memory_speed() +
           orthogonalising_seconds(request, machine, elements);
  const auto devices = static_cast<double>(std::min(machine.devices_per_node, world));
  return agreed + updated * (4 + width) / machine.host_link_bytes_per_s +
         devices * updated * (8 + state + written) / machine.host_bytes_per_s;
}

double tied_seconds(const Request& request, const Machine& machine, const Elements& last) {
  const double bytes = tied_bytes(request, last);
  return 2 * machine.between(0, request.mesh.size() - request.mesh.stage_size()).seconds(bytes / 2);
}

}  // namespace danlu::plan
