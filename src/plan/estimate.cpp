#include "plan/estimate.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "plan/layer_memory.h"
#include "plan/layer_work.h"
#include "plan/rank_memory.h"
#include "plan/update_time.h"

namespace danlu::plan {
namespace {

/// The operations of a whole forward pass.
double forward_flops(const Request& request) {
  Request alone = request;
  alone.mesh = {};
  const arch::ModelConfig& model = request.model;
  double flops = 2 * static_cast<double>(alone.pass_tokens()) *
                 static_cast<double>(request.head_rows()) * static_cast<double>(model.hidden_size);
  // Layers that predict further ahead go through the head too, and join two hidden states.
  flops *= static_cast<double>(1 + model.num_predictions());
  flops += 4 * static_cast<double>(alone.pass_tokens() * model.hidden_size * model.hidden_size *
                                   model.num_predictions());
  for (int64_t layer = 0; layer < model.num_layers + model.num_predictions(); ++layer) {
    const LayerWork work = work_of(alone, layer);
    flops += work.products + work.core;
  }
  return flops;
}

/// Operations of the tower in a forward and, as far as something learns there, in a backward.
double tower_flops(const Request& request) {
  if (!request.model.vision) return 0;
  Request alone = request;
  alone.mesh = {};
  double flops = around_blocks(alone);
  for (int64_t block = 0; block < request.model.vision->depth; ++block) {
    const LayerWork work = block_work(alone, block);
    flops += work.products + work.core;
  }
  bool is_trained = false, learns = false;
  const Uses uses = uses_of(request);
  for (const arch::ParamSpec& spec : arch::parameters_of(request.model)) {
    if (!spec.name.starts_with("visual.blocks.")) continue;
    is_trained |= uses.at(spec.name).is_trained;
    learns |= uses.at(spec.name).learns();
  }
  return flops * (is_trained ? 3 : learns ? 2 : 1);
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
  const double between_ends = machine.between(0, mesh.size() - mesh.stage_size()).network_share;
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    StagePlan& stage = plan.stages[s];
    stage.data = sent(stage.traffic.data - stage.traffic.replicas, paths.data.network_share);
    const Sent replicas = sent(stage.traffic.replicas, paths.replicas.network_share);
    stage.data.node += replicas.node;
    stage.data.network += replicas.network;
    stage.expert = sent(stage.traffic.expert, paths.expert.network_share);
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
    stage.pipeline = sent(stage.traffic.pipeline - stage.traffic.tied, share);
    const Sent tied = sent(stage.traffic.tied, between_ends);
    stage.pipeline.node += tied.node;
    stage.pipeline.network += tied.network;
  }
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

void time_stages(const std::vector<Elements>& elements, const ProgramTraits& program, Plan& plan) {
  const Request& request = plan.request;
  StageClock clock(request, plan.machine, program);
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
  if (request.mesh.model_copies() == 1) return;
  const double without = plan.simulated.seconds;
  Simulated with = simulate(schedules, with_copies, links, exchanges);
  plan.exposed_s = with.with_sums - without;
  with.bubble = plan.simulated.bubble;
  with.busy = plan.simulated.busy;
  plan.simulated = std::move(with);
  plan.simulated.seconds = without;
}

void put_files(const Machine& machine, Plan& plan) {
  const Request& request = plan.request;
  const double state = request.precision == settings::Precision::kF32 ? 8 : 12;
  const auto width = static_cast<double>(request.element_bytes());
  const auto written = static_cast<double>(request.adapters ? plan.trained : plan.parameters);
  int64_t updated = 0, fewer = 0;
  for (const StagePlan& stage : plan.stages) {
    updated += stage.memory.updated;
    fewer += stage.memory.fewer;
  }
  // Adam has two numbers for an element.
  const double one_less =
      fewer != 0 ? 4 * static_cast<double>(fewer) / static_cast<double>(updated) : 0;
  plan.checkpoint_bytes = written * (width + state - one_less);
  const int64_t nodes = (plan.world() + machine.devices_per_node - 1) / machine.devices_per_node;
  plan.checkpoint_s =
      plan.checkpoint_bytes / (machine.disk_bytes_per_s * static_cast<double>(nodes));
  // A rank reads its own weights and state.
  const auto devices = static_cast<double>(std::min(machine.devices_per_node, plan.world()));
  double most = 0;
  for (const StagePlan& stage : plan.stages) {
    const Memory& memory = stage.memory;
    // In files masters are whole.
    const double masters = request.precision == settings::Precision::kF32 ? 0 : 0.5;
    double own =
        static_cast<double>(memory.weights) + static_cast<double>(memory.moments) +
        masters * (static_cast<double>(memory.moments) + 4 * static_cast<double>(memory.fewer));
    if (request.state_in_files) own += offloaded_bytes(memory);
    most = std::max(most, own);
  }
  plan.restart_bytes = devices * most;
  plan.restart_s = plan.restart_bytes / machine.disk_bytes_per_s;
  const StagePlan& fullest = plan.stages[plan.fullest];
  plan.host_bytes = host_bytes(request, machine, fullest.stage, fullest.memory, fullest.in_flight);
}

}  // namespace

Plan make_plan(const Request& request, const Machine& machine, const ProgramTraits& program) {
  Plan plan{.request = request, .machine = machine};
  std::vector<Elements> elements;
  for (const arch::Stage& stage : arch::stages_of(request.model, request.pipeline)) {
    elements.push_back(elements_alone(request, stage));
    plan.stages.push_back({.stage = stage, .traffic = traffic_of(request, stage, elements.back())});
    // The whole model counts: a table that both ends hold counts once.
    Request one = request;
    one.mesh.tensor = one.mesh.expert = 1;
    plan.trained += request.mesh.tensor * request.mesh.expert == 1
                        ? elements.back().trained
                        : elements_alone(one, stage).trained;
  }
  plan.parameters = arch::parameter_count(request.model);
  if (!request.adapters && request.freeze.empty()) plan.trained = plan.parameters;
  time_stages(elements, program, plan);
  put_traffic(paths_of(request, machine), machine, plan);
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    StagePlan& stage = plan.stages[s];
    stage.in_flight = plan.simulated.peak_in_flight[s];
    stage.memory = memory_alone(request, stage.stage, static_cast<int64_t>(s));
    stage.memory.allocator =
        static_cast<int64_t>(static_cast<double>(stage.memory.total()) * machine.allocator);
    if (stage.memory.total() > plan.memory()) plan.fullest = s;
    plan.optimizer_s = std::max(plan.optimizer_s, update_seconds(request, machine, elements[s]));
  }
  plan.optimizer_s += tied_seconds(request, machine, elements.back());
  plan.step_s = plan.simulated.seconds + plan.exposed_s + plan.optimizer_s;
  const double data = static_cast<double>(request.mesh.data);
  const double passes = static_cast<double>(request.num_micro_batches) * data;
  plan.tokens_per_s =
      static_cast<double>(request.tokens * request.micro_batch_size) * passes / plan.step_s;
  // With adapters alone no gradients of weights are computed.
  const double passes_of_operations = request.adapters ? 2 : 3;
  plan.mfu = (passes_of_operations * forward_flops(request) + tower_flops(request)) * passes /
             plan.step_s / static_cast<double>(plan.world()) / machine.peak(request.precision);
  put_files(machine, plan);
  return plan;
}

}  // namespace danlu::plan
