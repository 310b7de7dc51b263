#include "plan/estimate.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "plan/rank_memory.h"

namespace danlu::plan {
namespace {

using settings::Sharding;

/// Of a whole forward pass, masked keys left out.
double forward_flops(const Request& request) {
  const arch::ModelConfig& model = request.model;
  const arch::Stage whole = arch::whole_of(model);
  double seen = 0;  // keys of a token, over the layers
  for (int64_t layer = 0; layer < model.num_layers; ++layer) {
    const auto at = static_cast<size_t>(layer);
    const int64_t window = at < model.sliding_window.size() ? model.sliding_window[at] : 0;
    const bool slides = window > 0 && window < request.tokens;
    seen += static_cast<double>(slides ? window : request.tokens) * (slides ? 1.0 : 0.5);
  }
  const auto tokens = static_cast<double>(request.tokens * request.micro_batch_size);
  const auto width = static_cast<double>(model.num_heads * model.head_dim);
  Request alone = request;
  alone.mesh = {};
  return tokens * (4 * seen * width + 2 * static_cast<double>(elements_of(alone, whole).products));
}

std::vector<StageLink> links_of(const Request& request, const Machine& machine,
                                const std::vector<StagePlan>& stages) {
  std::vector<StageLink> links;
  const int64_t ranks = request.mesh.stage_size(), world = request.mesh.size();
  for (size_t s = 0; s < stages.size(); ++s) {
    const int64_t last = (static_cast<int64_t>(s) + 1) * ranks - 1;
    const Path path = machine.between(last, (last + ranks) % world);
    links.push_back({stages[s].traffic.message / path.link.bytes_per_s, path.link.latency_s});
  }
  return links;
}

Sent sent(double bytes, double network_share) {
  return {bytes * (1 - network_share), bytes * network_share};
}

void put_traffic(const Paths& paths, const Machine& machine, Plan& plan) {
  const settings::MeshShape& mesh = plan.request.mesh;
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    StagePlan& stage = plan.stages[s];
    stage.data = sent(stage.traffic.data, paths.data.network_share);
    stage.tensor = sent(stage.traffic.tensor, paths.tensor.network_share);
    stage.context = sent(stage.traffic.context, paths.context.network_share);
    // Up and down, of as many messages.
    const int64_t first = static_cast<int64_t>(s) * mesh.stage_size(), world = mesh.size();
    const double up = machine.between(first, (first + mesh.stage_size()) % world).network_share;
    const double down =
        machine.between(first, (first + world - mesh.stage_size()) % world).network_share;
    const bool is_first = s == 0, is_last = s + 1 == plan.stages.size();
    const bool ring = stage.stage.num_chunks() > 1;
    const double share = is_first && !ring ? up : is_last && !ring ? down : (up + down) / 2;
    stage.pipeline = sent(stage.traffic.pipeline, share);
  }
}

/// Bytes of a pass that a stage's layers have elsewhere between forward and backward.
double away_bytes(const Request& request, const arch::Stage& stage) {
  if (request.offload.to == settings::OffloadTo::kNone) return 0;
  // Of one forward alone: what it keeps, here and there.
  arch::Schedule forward;
  for (int64_t chunk = 0; chunk < stage.num_chunks(); ++chunk)
    forward.push_back({arch::Work::kForward, 0, chunk});
  Request here = request;
  here.offload = {};
  const auto kept = [&](const Request& one) {
    return static_cast<double>(memory_of(one, stage, forward).activations);
  };
  return std::max(0.0, kept(here) - kept(request));
}

/// They go and come beside the work; it waits for what takes longer.
void wait_for_offload(const Request& request, const Machine& machine, double bytes,
                      ChunkTimes& times) {
  if (bytes == 0) return;
  const double speed =
      request.offload.to == settings::OffloadTo::kHost
          ? machine.host_link_bytes_per_s
          : machine.disk_bytes_per_s /
                static_cast<double>(std::min(machine.devices_per_node, request.mesh.size()));
  for (WorkTimes* work : {&times.work, &times.with_copies}) {
    const double backward = work->backward_input + work->backward_weight;
    const double out = std::max(0.0, bytes / speed - work->forward),
                 back = std::max(0.0, bytes / speed - backward);
    work->forward += out;
    work->backward_input += back;
    if (work == &times.work) times.parts.offload = out + back;
  }
}

void time_stages(const std::vector<Elements>& elements, const Engine& engine, Plan& plan) {
  const Request& request = plan.request;
  StageClock clock(request, plan.machine, engine);
  std::vector<arch::Schedule> schedules;
  std::vector<std::vector<WorkTimes>> alone, with_copies;
  std::vector<DataExchanges> exchanges;
  double most = -1;
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    const StagePlan& stage = plan.stages[s];
    schedules.push_back(schedule_of(request, stage.stage, static_cast<int64_t>(s)));
    alone.emplace_back();
    with_copies.emplace_back();
    Parts parts;
    double busy = 0;
    const double away = away_bytes(request, stage.stage);
    plan.away_bytes = std::max(plan.away_bytes, away);
    for (int64_t chunk = 0; chunk < stage.stage.num_chunks(); ++chunk) {
      ChunkTimes times = clock.chunk(stage.stage, chunk, stage.traffic, elements[s]);
      wait_for_offload(request, plan.machine, away / static_cast<double>(stage.stage.num_chunks()),
                       times);
      alone.back().push_back(times.work);
      with_copies.back().push_back(times.with_copies);
      parts += times.parts;
      busy += times.work.forward + times.work.backward_input + times.work.backward_weight;
    }
    exchanges.push_back(clock.exchanges(stage.stage, elements[s]));
    if (busy <= most) continue;
    most = busy;
    plan.slowest = s;
    plan.parts = parts * static_cast<double>(request.num_micro_batches);
  }
  const std::vector<StageLink> links = links_of(request, plan.machine, plan.stages);
  plan.simulated = simulate(schedules, alone, links);
  if (request.mesh.copies() == 1) return;
  const double without = plan.simulated.seconds;
  Simulated with = simulate(schedules, with_copies, links, exchanges);
  plan.exposed_s = with.with_sums - without;
  with.bubble = plan.simulated.bubble;
  with.busy = plan.simulated.busy;
  plan.simulated = std::move(with);
  plan.simulated.seconds = without;
}

/// Every rank reads its gradients twice (their norm, the update), masters and moments once, and
/// writes those and the weights. Offloaded, gradients go to the host and weights come back; all
/// devices of a node share its memory.
double optimizer_seconds(const Request& request, const Machine& machine, const Elements& elements,
                         int64_t world) {
  const bool shares = request.sharding >= Sharding::kState;
  const auto ranks = static_cast<double>(request.mesh.are_some_sharers() ? request.mesh.sharers
                                                                         : request.mesh.copies());
  const double updated = static_cast<double>(elements.trained) / (shares ? ranks : 1);
  const auto width = static_cast<double>(request.element_bytes());
  const double state = request.precision == settings::Precision::kF32 ? 8 + 4 : 12;
  const double written = state + (request.precision == settings::Precision::kF32 ? 0 : width);
  const Path all = machine.path(world, 1);
  const double agreed = world > 1 ? 2 * all.seconds(4) : 0;
  if (!request.state_in_files)
    return agreed + updated * (8 + state + written) / machine.memory_speed();
  const auto devices = static_cast<double>(std::min(machine.devices_per_node, world));
  return agreed + updated * (4 + width) / machine.host_link_bytes_per_s +
         devices * updated * (8 + state + written) / machine.host_bytes_per_s;
}

/// A table at both ends: its gradient is summed once a step.
double tied_seconds(const Request& request, const Machine& machine,
                    const std::vector<StagePlan>& stages) {
  if (stages.size() == 1 || !stages.back().stage.copies_embedding || request.adapters) return 0;
  const double bytes = 4 * static_cast<double>(request.model.vocab_size) *
                       static_cast<double>(request.model.hidden_size) /
                       static_cast<double>(request.mesh.tensor);
  return 2 * machine.between(0, request.mesh.size() - request.mesh.stage_size()).seconds(bytes / 2);
}

void put_files(const Machine& machine, Plan& plan) {
  const Request& request = plan.request;
  const double state = request.precision == settings::Precision::kF32 ? 8 : 12;
  const auto width = static_cast<double>(request.element_bytes());
  const auto written = static_cast<double>(request.adapters ? plan.trained : plan.parameters);
  plan.checkpoint_bytes = written * (width + state);
  const int64_t nodes = (plan.world() + machine.devices_per_node - 1) / machine.devices_per_node;
  plan.checkpoint_s =
      plan.checkpoint_bytes / (machine.disk_bytes_per_s * static_cast<double>(nodes));
  // A rank reads its own weights and state.
  const auto devices = static_cast<double>(std::min(machine.devices_per_node, plan.world()));
  double most = 0;
  for (const StagePlan& stage : plan.stages) {
    const Memory& memory = stage.memory;
    double own = static_cast<double>(memory.weights + memory.masters + memory.moments);
    if (request.state_in_files) own += offloaded_bytes(request, memory);
    most = std::max(most, own);
  }
  plan.restart_bytes = devices * most;
  plan.restart_s = plan.restart_bytes / machine.disk_bytes_per_s;
  if (request.offload.to == settings::OffloadTo::kHost)
    plan.host_bytes = devices * plan.away_bytes *
                      static_cast<double>(plan.stages[plan.fullest].in_flight) /
                      static_cast<double>(plan.stages[plan.fullest].stage.num_chunks());
  if (request.state_in_files)
    plan.host_bytes += devices * offloaded_bytes(request, plan.stages[plan.fullest].memory);
}

}  // namespace

Plan make_plan(const Request& request, const Machine& machine, const Engine& engine) {
  arch::require_runnable(request.model);
  Plan plan{.request = request, .machine = machine};
  std::vector<Elements> elements;
  for (const arch::Stage& stage : arch::stages_of(request.model, request.pipeline)) {
    elements.push_back(elements_alone(request, stage));
    plan.stages.push_back({.stage = stage, .traffic = traffic_of(request, stage, elements.back())});
    // Of the whole model: a table that both ends hold counts once.
    Request one = request;
    one.mesh.tensor = 1;
    plan.trained +=
        request.mesh.tensor == 1 ? elements.back().trained : elements_alone(one, stage).trained;
  }
  plan.parameters = arch::parameter_count(request.model);
  if (!request.adapters && request.freeze.empty()) plan.trained = plan.parameters;
  time_stages(elements, engine, plan);
  put_traffic(paths_of(request, machine), machine, plan);
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    StagePlan& stage = plan.stages[s];
    stage.in_flight = plan.simulated.peak_in_flight[s];
    stage.memory = memory_alone(request, stage.stage, static_cast<int64_t>(s));
    stage.memory.allocator =
        static_cast<int64_t>(static_cast<double>(stage.memory.total()) * machine.allocator);
    if (stage.memory.total() > plan.memory()) plan.fullest = s;
    plan.optimizer_s =
        std::max(plan.optimizer_s, optimizer_seconds(request, machine, elements[s], plan.world()));
  }
  plan.optimizer_s += tied_seconds(request, machine, plan.stages);
  plan.step_s = plan.simulated.seconds + plan.exposed_s + plan.optimizer_s;
  const double data = static_cast<double>(request.mesh.data);
  const double passes = static_cast<double>(request.num_micro_batches) * data;
  plan.tokens_per_s =
      static_cast<double>(request.tokens * request.micro_batch_size) * passes / plan.step_s;
  plan.mfu = 3 * forward_flops(request) * passes / plan.step_s / static_cast<double>(plan.world()) /
             machine.peak(request.precision);
  put_files(machine, plan);
  return plan;
}

}  // namespace danlu::plan
