#include "plan/estimate.h"

#include <algorithm>

#include "base/error.h"

namespace danlu::plan {
namespace {

using settings::LayerRecompute, settings::Sharding;

/// Floating-point operations of the attention cores of a rank's part of a stage, forward.
double attention_flops(const Request& request, const arch::Stage& stage) {
  const arch::ModelConfig& model = request.model;
  double seen = 0;  // keys of a token, over the layers
  for (const int64_t layer : stage.layers()) {
    const auto at = static_cast<size_t>(layer);
    const int64_t window = at < model.sliding_window.size() ? model.sliding_window[at] : 0;
    const int64_t keys = window > 0 ? std::min(window, request.tokens) : request.tokens;
    seen += static_cast<double>(keys) * (window > 0 && window < request.tokens ? 1.0 : 0.5);
  }
  const auto width = static_cast<double>(model.num_heads * model.head_dim);
  return 4 * static_cast<double>(request.pass_tokens()) * seen * width /
         static_cast<double>(request.mesh.tensor);
}

/// Of a whole forward pass.
double forward_flops(const Request& request, const arch::Stage& stage) {
  return attention_flops(request, stage) +
         2 * static_cast<double>(request.pass_tokens()) *
             static_cast<double>(elements_of(request, stage).products);
}

/// Of what backward runs again.
double recomputed_flops(const Request& request, const arch::Stage& stage) {
  if (stage.layers().empty()) return 0;
  const arch::ModelConfig& model = request.model;
  const double tokens_of_rank =
      2 * static_cast<double>(request.pass_tokens()) / static_cast<double>(request.mesh.tensor);
  const int64_t head = stage.has_head ? model.vocab_size * model.hidden_size : 0;
  const double all = forward_flops(request, stage) - tokens_of_rank * static_cast<double>(head);
  // Selective: the attention core, and the gated product with the matrix behind it.
  const double selected =
      attention_flops(request, stage) + static_cast<double>(stage.layers().size()) *
                                            tokens_of_rank *
                                            static_cast<double>(model.hidden_size * model.ffn_size);
  return share_again(request, stage, LayerRecompute::kFull) * all +
         share_again(request, stage, LayerRecompute::kSelective) * selected;
}

/// One run of layers of a stage, as a stage of its own.
arch::Stage chunk_of(const arch::Stage& stage, int64_t chunk) {
  return {.chunks = {stage.chunks[static_cast<size_t>(chunk)]},
          .has_embedding = stage.begins_at(chunk),
          .has_head = stage.ends_at(chunk),
          .copies_embedding = stage.copies_embedding && stage.ends_at(chunk)};
}

/// What a layer's exchanges over the context axis add to a pass: keys that travel while others are
/// met cost what attention does not hide; heads are exchanged before and after it.
double context_seconds(const Request& request, const Machine& machine, double bytes,
                       double attention_s) {
  const settings::ContextShape& shape = request.mesh.context;
  if (shape.is_alone()) return 0;
  const Link& link = machine.link(request.mesh.tensor * shape.size());
  const double seconds = bytes / link.bytes_per_s + 2 * link.latency_s;
  return shape.ring > 1 ? std::max(0.0, seconds - attention_s) : seconds;
}

WorkTimes times_of(const Request& request, const Machine& machine, const StagePlan& plan,
                   int64_t chunk) {
  const StagePlan stage{.stage = chunk_of(plan.stage, chunk), .traffic = plan.traffic};
  const double speed = machine.peak(request.precision) * machine.reachable;
  const auto layers = static_cast<double>(stage.stage.layers().size());
  const double attention = layers > 0 ? attention_flops(request, stage.stage) / speed / layers : 0;
  const double context =
      layers * context_seconds(request, machine, stage.traffic.context_of_layer / 2, attention);
  const double forward = forward_flops(request, stage.stage) / speed + context;
  const Link& link = machine.link(request.mesh.tensor);
  const bool alone = request.mesh.tensor == 1;
  const double again = share_again(request, stage.stage, LayerRecompute::kFull);
  const double exchanges = alone ? 0
                                 : layers * (stage.traffic.tensor_of_layer / link.bytes_per_s +
                                             (4 + 2 * again) * link.latency_s);
  const double forward_part = 1 / (2 + again);
  WorkTimes times;
  times.forward = forward + exchanges * forward_part;
  times.backward_input =
      forward + recomputed_flops(request, stage.stage) / speed + exchanges * (1 - forward_part);
  times.backward_weight = request.adapters ? 0 : forward - context;  // adapters' are small
  return times;
}

void time_stages(Plan& plan) {
  const Request& request = plan.request;
  const auto count = static_cast<int64_t>(plan.stages.size());
  std::vector<arch::Schedule> schedules;
  std::vector<std::vector<WorkTimes>> times;
  std::vector<StageLink> links;
  for (int64_t s = 0; s < count; ++s) {
    const StagePlan& stage = plan.stages[static_cast<size_t>(s)];
    const int64_t chunks = stage.stage.num_chunks();
    schedules.push_back(schedule_of(request, stage.stage, s));
    times.emplace_back();
    for (int64_t chunk = 0; chunk < chunks; ++chunk)
      times.back().push_back(times_of(request, plan.machine, stage, chunk));
    const Link& link = plan.machine.link(request.mesh.stage_size() + 1);
    links.push_back({stage.traffic.message / link.bytes_per_s, link.latency_s});
  }
  plan.simulated = simulate(schedules, times, links);
  double slowest = 0;
  for (int64_t s = 0; s < count; ++s) {
    const auto at = static_cast<size_t>(s);
    WorkTimes work;
    for (const WorkTimes& chunk : times[at]) {
      work.backward_input += chunk.backward_input;
      work.backward_weight += chunk.backward_weight;
    }
    const Link& link = plan.machine.link(request.mesh.tensor * request.mesh.copies());
    const double exchange = plan.stages[at].traffic.data / link.bytes_per_s;
    // Up to ZeRO-1 sums run beside the last backward; beyond it, beside every pass.
    const double backward = work.backward_input + work.backward_weight;
    const double hides =
        request.sharding >= Sharding::kGradients ? plan.simulated.busy[at] : backward;
    slowest = std::max(slowest, exchange - hides);
  }
  plan.exposed_s = std::max(0.0, slowest);
}

}  // namespace

Plan make_plan(const Request& request, const Machine& machine) {
  arch::require_runnable(request.model);
  Plan plan{.request = request, .machine = machine};
  for (const arch::Stage& stage : arch::stages_of(request.model, request.pipeline)) {
    plan.stages.push_back({.stage = stage, .traffic = traffic_of(request, stage)});
    const Elements elements = elements_of(request, stage);
    // Of the whole model: a table that both ends hold counts once.
    Request one = request;
    one.mesh.tensor = 1;
    const Elements whole = request.mesh.tensor == 1 ? elements : elements_of(one, stage);
    plan.trained += whole.trained;
  }
  plan.parameters = arch::parameter_count(request.model);
  if (!request.adapters && request.freeze.empty()) plan.trained = plan.parameters;
  time_stages(plan);
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    StagePlan& stage = plan.stages[s];
    stage.in_flight = plan.simulated.peak_in_flight[s];
    stage.memory =
        memory_of(request, stage.stage, schedule_of(request, stage.stage, static_cast<int64_t>(s)));
    stage.memory.allocator =
        static_cast<int64_t>(static_cast<double>(stage.memory.total()) * machine.allocator);
    if (stage.memory.total() > plan.memory()) plan.fullest = s;
  }
  const Memory& memory = plan.stages[plan.fullest].memory;
  // Gradients are read, masters and moments read and written, weights written.
  plan.optimizer_s = static_cast<double>(memory.gradients + 2 * (memory.masters + memory.moments) +
                                         memory.weights) /
                     machine.memory_bytes_per_s;
  plan.step_s = plan.simulated.seconds + plan.exposed_s + plan.optimizer_s;
  const auto data = static_cast<double>(request.mesh.data);
  const auto tokens =
      static_cast<double>(request.tokens * request.micro_batch_size * request.num_micro_batches) *
      data;
  plan.tokens_per_s = tokens / plan.step_s;
  Request alone = request;
  alone.mesh = {};
  const double flops = 3 * forward_flops(alone, arch::whole_of(request.model)) *
                       static_cast<double>(request.num_micro_batches) * data;
  plan.mfu =
      flops / plan.step_s / static_cast<double>(plan.world()) / machine.peak(request.precision);
  const double state = request.precision == settings::Precision::kF32 ? 8 : 12;
  const auto width = static_cast<double>(request.element_bytes());
  const auto written = static_cast<double>(request.adapters ? plan.trained : plan.parameters);
  plan.checkpoint_bytes = written * (width + state);
  const int64_t nodes = (plan.world() + machine.devices_per_node - 1) / machine.devices_per_node;
  plan.checkpoint_s =
      plan.checkpoint_bytes / (machine.disk_bytes_per_s * static_cast<double>(nodes));
  return plan;
}

std::vector<Plan> search_plans(const Request& request, const Machine& machine, int64_t world,
                               int64_t samples, size_t limit) {
  std::vector<Plan> plans;
  const auto attempt = [&](const Request& candidate) {
    try {
      Plan plan = make_plan(candidate, machine);
      plan.simulated.spans.clear();
      plans.push_back(std::move(plan));
    } catch (const UsageError&) {  // sizes that do not divide
    }
  };
  for (int64_t tp = 1; tp <= std::min(world, machine.devices_per_node); ++tp) {
    for (int64_t pp = 1; world % tp == 0 && pp <= std::min(world / tp, request.model.num_layers);
         ++pp) {
      const int64_t cp = request.mesh.context.size(), dp = world / tp / pp / cp;
      if (world % (tp * pp * cp) != 0 || samples % dp != 0 || request.model.num_layers % pp != 0)
        continue;
      for (int64_t micro = 1; micro <= 8 && samples / dp % micro == 0; micro *= 2) {
        for (const char* recompute : {"none", "selective", "full"}) {
          for (const Sharding sharding :
               {Sharding::kNone, Sharding::kState, Sharding::kGradients, Sharding::kParameters}) {
            if (sharding != Sharding::kNone && dp * cp == 1) continue;
            Request candidate = request;
            candidate.mesh = {.tensor = tp,
                              .data = dp,
                              .pipeline = pp,
                              .context = request.mesh.context,
                              .sequence_parallel = tp > 1};
            candidate.pipeline = {.stages = pp};
            candidate.sharding = sharding;
            candidate.recompute = {.granularity = recompute};
            candidate.micro_batch_size = micro;
            candidate.num_micro_batches = samples / dp / micro;
            attempt(candidate);
          }
        }
      }
    }
  }
  std::stable_sort(plans.begin(), plans.end(), [](const Plan& a, const Plan& b) {
    if (a.fits() != b.fits()) return a.fits();
    return a.fits() ? a.step_s < b.step_s : a.memory() < b.memory();
  });
  if (plans.size() > limit) plans.resize(limit);
  return plans;
}

}  // namespace danlu::plan
