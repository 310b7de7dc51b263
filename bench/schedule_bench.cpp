// bench/schedule_bench.cpp: what the schedules of a training wait for, and `danlu plan` against it.
//
//   schedule_bench [--rounds 3] [bubble] [overlap] [context] [wall] [virtual]   none: all of them
//
// Prints Markdown tables. Ranks are threads. bubble, overlap and virtual are in virtual time
// (parallel/virtual_clock.h): each thread's clock goes on with its own processor time, exchanges
// take what a modelled link takes (kLinks below). wall and virtual hold the plan's step time
// against the measured one, of one and two ranks by the wall and of up to eight in virtual time,
// --rounds times; each time stands between two calibrations, in the same kind of time: trainings of
// another shape, one model for each processor that the mesh keeps busy.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <numeric>
#include <set>
#include <string>

#include "flags.h"
#include "plan/estimate.h"
#include "virtual_training.h"

namespace danlu::bench {
namespace {

using parallel::MeshShape, parallel::Sharding, parallel::VirtualTime;
using Order = arch::PipelineOrder;

/// 4 devices a node; 4 GB/s and 10 µs between them, 1 GB/s and 30 µs between nodes.
const VirtualTime kLinks{.devices_per_node = 4,
                         .node = {.bytes_per_s = 4e9, .latency_s = 10e-6},
                         .network = {.bytes_per_s = 1e9, .latency_s = 30e-6}};

double as_double(int64_t value) { return static_cast<double>(value); }

// ---- bubbles ----

/// Mean seconds of each kind of pass on all ranks, and of the longest stage over their mean.
struct PassTimes {
  plan::WorkTimes mean;
  double imbalance = 1;
};
PassTimes pass_times(const Step& step) {
  std::map<arch::Work, std::pair<double, int64_t>> sums;
  for (const auto& spans : step.spans) {
    for (const train::ActionSpan& span : spans) {
      auto& [seconds, count] = sums[span.action.work];
      seconds += span.seconds();
      ++count;
    }
  }
  const auto mean = [&](arch::Work work) {
    const auto& [seconds, count] = sums[work];
    return count > 0 ? seconds / as_double(count) : 0;
  };
  const std::vector<double> busy = train::times_of(step.spans).busy;
  const double all = std::accumulate(busy.begin(), busy.end(), 0.0);
  PassTimes times;
  // A whole backward in the place of its first part: parts differ in what zero bubble does alone.
  times.mean = {mean(arch::Work::kForward),
                mean(arch::Work::kBackward) + mean(arch::Work::kBackwardInput),
                mean(arch::Work::kBackwardWeight)};
  times.imbalance = *std::max_element(busy.begin(), busy.end()) / (all / as_double(busy.size()));
  return times;
}

/// Share of all that is waited by the papers' formulas.
double formula(const Training& t, const plan::WorkTimes& times) {
  const double p = as_double(t.mesh.pipeline), m = as_double(t.micro_batches);
  if (t.order == Order::kInterleaved) {
    const double over_work = (p - 1) / (as_double(t.chunks) * m);
    return over_work / (1 + over_work);
  }
  if (t.order == Order::kOneForwardOneBackward) return (p - 1) / (m + p - 1);
  // arXiv:2401.10241, table 2.
  const double waits = (p - 1) * (times.forward + times.backward_input - times.backward_weight);
  const double works = m * (times.forward + times.backward_input + times.backward_weight);
  return waits / (works + waits);
}

double simulated_bubble(const Training& t, const plan::WorkTimes& times) {
  std::vector<arch::Schedule> schedules;
  for (int64_t s = 0; s < t.mesh.pipeline; ++s)
    schedules.push_back(arch::schedule_of(t.order, s, t.mesh.pipeline, t.chunks, t.micro_batches));
  const auto stages = static_cast<size_t>(t.mesh.pipeline);
  const double bytes = as_double(t.tokens * t.shape.hidden * 4);
  return plan::simulate(schedules, {stages, std::vector(static_cast<size_t>(t.chunks), times)},
                        {stages, {kLinks.node.seconds(bytes), kLinks.node.latency_s}})
      .bubble;
}

const char* name_of(Order order) {
  return order == Order::kInterleaved  ? "interleaved, 2 runs a stage"
         : order == Order::kZeroBubble ? "zero bubble"
                                       : "1F1B";
}

void print_bubbles() {
  fmt::print(
      "\n## Bubbles\n\n16 layers of 256, vocabulary 256, 128 tokens a micro-batch, f32. Share of "
      "stages × time without a pass; simulated: with the mean passes that were measured.\n\n"
      "| schedule | p | m | measured | formula | simulated | longest stage / mean |\n"
      "|---|---|---|---|---|---|---|\n");
  for (const Order order :
       {Order::kOneForwardOneBackward, Order::kInterleaved, Order::kZeroBubble}) {
    for (const int64_t p : {2, 4, 8}) {
      for (const int64_t m : {p, 2 * p, 4 * p}) {
        const Training t{.mesh = {.pipeline = p, .ring = order == Order::kInterleaved},
                         .order = order,
                         .chunks = order == Order::kInterleaved ? 2 : 1,
                         .micro_batches = m,
                         .tokens = 128};
        VirtualTime links = kLinks;
        links.devices_per_node = p;
        std::vector<Step> steps = train_steps(t, 3, &links);
        std::sort(steps.begin(), steps.end(), [](const Step& a, const Step& b) {
          return train::times_of(a.spans).bubble() < train::times_of(b.spans).bubble();
        });
        const Step& middle = steps[1];
        const PassTimes times = pass_times(middle);
        fmt::print("| {} | {} | {} | {:.3f} | {:.3f} | {:.3f} | {:.3f} |\n", name_of(order), p, m,
                   train::times_of(middle.spans).bubble(), formula(t, times.mean),
                   simulated_bubble(t, times.mean), times.imbalance);
        std::fflush(stdout);
      }
    }
  }
}

// ---- overlap ----

struct Named {
  std::string name;
  Training training;
};

void print_overlap() {
  const Shape shape{.layers = 8, .hidden = 384, .ffn = 1024, .kv_heads = 4, .vocab = 2048};
  const auto of = [&](const MeshShape& mesh, Sharding sharding, int64_t micro_batches,
                      int64_t tokens, int64_t chunks = 1) {
    return Training{.shape = shape,
                    .mesh = mesh,
                    .sharding = sharding,
                    .order = chunks > 1 ? Order::kInterleaved : Order::kOneForwardOneBackward,
                    .chunks = chunks,
                    .micro_batches = micro_batches,
                    .tokens = tokens};
  };
  const std::vector<Named> rows = {
      {"messages of a pipeline, pp 4, m 8", of({.pipeline = 4}, Sharding::kNone, 8, 256)},
      {"the same, interleaved",
       of({.pipeline = 4, .ring = true}, Sharding::kNone, 8, 256, /*chunks=*/2)},
      {"gradients' sums, dp 4, m 2", of({.data = 4}, Sharding::kNone, 2, 256)},
      {"ZeRO-1, dp 4, m 2", of({.data = 4}, Sharding::kState, 2, 256)},
      {"ZeRO-2, dp 4, m 2", of({.data = 4}, Sharding::kGradients, 2, 256)},
      {"ZeRO-3, dp 4, m 2", of({.data = 4}, Sharding::kParameters, 2, 256)},
      {"ring's keys and their gradients, cp 4, m 2, 2048 tokens",
       of({.context = {.ring = 4}}, Sharding::kNone, 2, 2048)},
      {"Ulysses, cp 4, m 2, 2048 tokens",
       of({.context = {.ulysses = 4}}, Sharding::kNone, 2, 2048)}};
  fmt::print(
      "\n## Overlap\n\n8 layers of 384, vocabulary 2048, f32; 256 tokens a micro-batch unless "
      "said. Milliseconds a rank and step, "
      "gradients' sums of the context axis included; overlap: 1 − waited / on links.\n\n"
      "| exchanges | links GB/s | step | on links | waited for links | for ranks | overlap |\n"
      "|---|---|---|---|---|---|---|\n");
  for (const auto& [name, training] : rows) {
    for (const double gb_per_s : {1.0, 4.0, 16.0}) {
      VirtualTime links = kLinks;
      links.devices_per_node = 4;
      links.node.bytes_per_s = gb_per_s * 1e9;
      parallel::ExchangeTimes sum;
      std::vector<double> seconds;
      for (const Step& step : train_steps(training, 3, &links)) {
        sum.modelled += step.exchanges.modelled;
        sum.exposed += step.exchanges.exposed;
        sum.late += step.exchanges.late;
        seconds.push_back(step.seconds);
      }
      const double ms = 1e3 / 3 / as_double(training.mesh.size());
      fmt::print("| {} | {} | {:.1f} | {:.2f} | {:.2f} | {:.2f} | {:.2f} |\n", name, gb_per_s,
                 median(seconds) * 1e3, sum.modelled * ms, sum.exposed * ms, sum.late * ms,
                 sum.overlap());
      std::fflush(stdout);
    }
  }
}

// ---- bytes of the context axis ----

/// Bytes that rank 0 sends over the context axis in a forward and backward of so many layers.
int64_t sent_in_a_pass(Shape shape, const MeshShape& mesh_shape, int64_t layers, int64_t tokens) {
  shape.layers = layers;
  int64_t bytes = 0;
  parallel::run_local_ranks(mesh_shape.size(), [&](parallel::World& world) {
    const parallel::Mesh mesh(world, mesh_shape);
    train::TrainConfig config;
    train::TrainState state = state_of(
        {.shape = shape, .mesh = mesh_shape, .micro_batches = 1, .tokens = tokens}, config, mesh);
    const int64_t before = mesh.context().traffic().bytes;
    run_step(state, Training{.shape = shape, .micro_batches = 1, .tokens = tokens}.batches(),
             config, config.schedule.shape);
    if (world.rank() == 0) bytes = mesh.context().traffic().bytes - before;
  });
  return bytes;
}

void print_context_bytes() {
  const int64_t tokens = 512, width = 4;
  fmt::print(
      "\n## Bytes of a layer over the context axis\n\nHead width 32, {} tokens, f32; sent by a "
      "rank, forward and backward; formulas of docs/context_parallel.md.\n\n"
      "| heads / key heads | cp | ring, bytes | / formula | Ulysses, bytes | / formula | ring / "
      "Ulysses |\n|---|---|---|---|---|---|---|\n",
      tokens);
  for (const int64_t kv_heads : {8, 2}) {
    for (const int64_t cp : {2, 4, 8}) {
      const Shape shape{.kv_heads = kv_heads};
      const auto of_layer = [&](const settings::ContextShape& context) {
        const MeshShape mesh{.context = context};
        return as_double(sent_in_a_pass(shape, mesh, 2, tokens) -
                         sent_in_a_pass(shape, mesh, 1, tokens));
      };
      const double d = as_double(shape.hidden / shape.heads), n = as_double(tokens / cp),
                   q = as_double(shape.heads), k = as_double(kv_heads), c = as_double(cp);
      const double ring = of_layer({.ring = cp}), ulysses = of_layer({.ulysses = cp});
      const double ring_formula = 2 * 2 * k * d * width * n * (c - 1) + 2 * k * d * 4 * n * c;
      // Where several ranks take the same key head it goes to each of them.
      const double ulysses_formula = 2 * (2 * q + 2 * std::max(k, c)) * d * width * n * (c - 1) / c;
      fmt::print("| {} / {} | {} | {:.0f} | {:.4f} | {:.0f} | {:.4f} | {:.2f} |\n", shape.heads,
                 kv_heads, cp, ring, ring / ring_formula, ulysses, ulysses / ulysses_formula,
                 ring / ulysses);
    }
  }
}

// ---- step time against the plan ----

plan::Machine machine_of(const VirtualTime& links) {
  plan::Machine machine;
  machine.devices_per_node = links.devices_per_node;
  machine.memory_bytes = machine.host_bytes = 1e12;
  machine.disk_bytes_per_s = 1e9;
  machine.f32_flops = machine.f16_flops = machine.bf16_flops = 1;
  machine.memory_bytes_per_s = 1;
  machine.node = {links.node.bytes_per_s, links.node.latency_s};
  machine.network = {links.network.bytes_per_s, links.network.latency_s};
  return machine;
}

plan::Plan plan_of(const Training& t, const plan::Machine& machine) {
  return plan::make_plan({.model = t.shape.config(),
                          .mesh = t.mesh,
                          .pipeline = t.split(),
                          .sharding = t.sharding,
                          .precision = settings::Precision::kF32,
                          .tokens = t.tokens,
                          .micro_batch_size = 1,
                          .num_micro_batches = t.micro_batches,
                          .order = t.order},
                         machine);
}

/// What a machine file states of a device, from trainings on one: of other shapes than any planned.
struct Calibration {
  double flops_per_s = 0;  ///< of products
  double attention = 0;    ///< of that, what attention reaches
  double bytes_per_s = 0;

  Calibration halfway_to(const Calibration& other) const {
    return {(flops_per_s + other.flops_per_s) / 2, (attention + other.attention) / 2,
            (bytes_per_s + other.bytes_per_s) / 2};
  }
  plan::Machine on(const VirtualTime& links) const {
    plan::Machine machine = machine_of(links);
    machine.f32_flops = flops_per_s;
    machine.attention = attention;
    machine.memory_bytes_per_s = bytes_per_s;
    return machine;
  }
};

Calibration calibrate(int64_t models, const VirtualTime* time) {
  // Products take most of one, attention of the other.
  const Training of_products{
      .shape = {.layers = 4, .hidden = 512, .ffn = 1280, .kv_heads = 8, .vocab = 3072},
      .micro_batches = 2,
      .tokens = 320};
  const Training of_attention{
      .shape = {.layers = 2, .hidden = 256, .ffn = 512, .kv_heads = 8, .vocab = 512},
      .micro_batches = 1,
      .tokens = 1536};
  std::vector<double> steps, updates, long_steps;
  for (const Step& step : train_steps(of_products, 3, time, models)) {
    steps.push_back(step.seconds);
    updates.push_back(step.update_s);
  }
  for (const Step& step : train_steps(of_attention, 3, time, models))
    long_steps.push_back(step.seconds);
  // The update is bytes alone. With their speed known, each training gives one speed, given the
  // other: by turns, until both are met.
  Calibration found{1e9, 1, 1};
  found.bytes_per_s = plan_of(of_products, found.on(kLinks)).optimizer_s / median(updates);
  for (int i = 0; i < 40; ++i) {
    const double planned = plan_of(of_products, found.on(kLinks)).step_s;
    found.flops_per_s *= planned / median(steps);
    const double planned_long = plan_of(of_attention, found.on(kLinks)).step_s;
    found.attention = std::clamp(found.attention * planned_long / median(long_steps), 0.05, 1.0);
  }
  return found;
}

/// Seconds and bytes a second of a tensor between two threads, as all-reduces take them.
parallel::ModelledLink link_between_threads() {
  parallel::ModelledLink link;
  parallel::run_local_ranks(2, [&](parallel::World& world) {
    const auto group = world.make_group_of_all();
    const auto timed = [&](int64_t elements) {
      at::Tensor what = at::zeros({elements}, at::kFloat);
      std::vector<double> seconds;
      for (int i = 0; i < 9; ++i) {
        group->barrier();
        const double begin = now();
        group->all_reduce_sum(what);
        seconds.push_back(now() - begin);
      }
      return median(seconds);
    };
    const int64_t many = int64_t{1} << 22;
    const double small = timed(1), large = timed(many);
    if (world.rank() == 0) link = {as_double(4 * many) / (large - small), small};
  });
  return link;
}

/// Measures meshes, each between two calibrations.
class Comparison {
 public:
  explicit Comparison(int rounds) : rounds_(rounds) {}

  /// time: virtual; nullptr: the wall's.
  void print(const Named& row, const VirtualTime* time) {
    // As many models at once as the mesh keeps processors busy.
    const int64_t models = std::min<int64_t>(2, row.training.mesh.size());
    std::vector<double> measured, predicted, flops, attention;
    VirtualTime links = kLinks;
    if (!time) links.node = links.network = link_between_threads();
    if (models != models_ || time != time_) last_ = calibrate(models, time);
    models_ = models;
    time_ = time;
    for (int round = 0; round < rounds_; ++round) {
      for (const Step& step : train_steps(row.training, 3, time)) measured.push_back(step.seconds);
      const Calibration next = calibrate(models, time);
      const Calibration between = last_.halfway_to(next);
      predicted.push_back(plan_of(row.training, between.on(links)).step_s);
      flops.push_back(between.flops_per_s);
      attention.push_back(between.attention);
      last_ = next;
    }
    const double got = median(measured), expected = median(predicted);
    fmt::print("| {} | {} | {:.1f} | {:.1f} | {:+.0f} % | {:.0f} | {:.2f} |\n", row.name,
               time ? "virtual" : "wall", got * 1e3, expected * 1e3, (expected / got - 1) * 100,
               median(flops) / 1e9, median(attention));
    std::fflush(stdout);
  }

 private:
  int rounds_;
  int64_t models_ = 0;
  const VirtualTime* time_ = nullptr;
  Calibration last_;
};

/// Instead of a number of micro-batches: two, as long as those of a context axis.
constexpr int64_t kLong = 0;

std::vector<Named> planned_rows() {
  const Shape shape{.layers = 8, .hidden = 384, .ffn = 1024, .kv_heads = 4, .vocab = 2048};
  const auto of = [&](const MeshShape& mesh, Sharding sharding = Sharding::kNone,
                      int64_t micro_batches = 4, Order order = Order::kOneForwardOneBackward) {
    const bool is_long = !mesh.context.is_alone() || micro_batches == kLong;
    return Training{.shape = shape,
                    .mesh = mesh,
                    .sharding = sharding,
                    .order = order,
                    .chunks = order == Order::kInterleaved ? 2 : 1,
                    .micro_batches = is_long ? 2 : micro_batches,
                    .tokens = is_long ? 1024 : 256};
  };
  const settings::ContextShape ring2{.ring = 2}, ring4{.ring = 4}, heads2{.ulysses = 2},
      heads4{.ulysses = 4};
  return {
      {"1 rank", of({})},
      {"1 rank, 1024 tokens", of({}, Sharding::kNone, kLong)},
      {"tp 2", of({.tensor = 2})},
      {"tp 2, sequence parallel", of({.tensor = 2, .sequence_parallel = true})},
      {"dp 2", of({.data = 2})},
      {"dp 2, ZeRO-1", of({.data = 2}, Sharding::kState)},
      {"dp 2, ZeRO-3", of({.data = 2}, Sharding::kParameters)},
      {"pp 2", of({.pipeline = 2}, Sharding::kNone, 8)},
      {"pp 2, interleaved",
       of({.pipeline = 2, .ring = true}, Sharding::kNone, 8, Order::kInterleaved)},
      {"pp 2, zero bubble", of({.pipeline = 2}, Sharding::kNone, 8, Order::kZeroBubble)},
      {"cp 2, ring", of({.context = ring2})},
      {"cp 2, Ulysses", of({.context = heads2})},
      {"tp 4", of({.tensor = 4})},
      {"pp 4", of({.pipeline = 4}, Sharding::kNone, 8)},
      {"pp 4, interleaved",
       of({.pipeline = 4, .ring = true}, Sharding::kNone, 8, Order::kInterleaved)},
      {"pp 4, zero bubble", of({.pipeline = 4}, Sharding::kNone, 8, Order::kZeroBubble)},
      {"dp 4, ZeRO-1", of({.data = 4}, Sharding::kState)},
      {"dp 4, ZeRO-2", of({.data = 4}, Sharding::kGradients)},
      {"dp 4, ZeRO-3", of({.data = 4}, Sharding::kParameters)},
      {"cp 4, ring", of({.context = ring4})},
      {"cp 4, Ulysses", of({.context = heads4})},
      {"tp 2, pp 2", of({.tensor = 2, .pipeline = 2}, Sharding::kNone, 8)},
      {"tp 2, dp 2, ZeRO-1", of({.tensor = 2, .data = 2}, Sharding::kState)},
      {"pp 8", of({.pipeline = 8}, Sharding::kNone, 8)},
      {"dp 8, ZeRO-3", of({.data = 8}, Sharding::kParameters, 2)},
      {"tp 2, pp 2, dp 2, ZeRO-1", of({.tensor = 2, .data = 2, .pipeline = 2}, Sharding::kState)},
      {"pp 4, dp 2, ZeRO-2", of({.data = 2, .pipeline = 4}, Sharding::kGradients)},
      {"tp 2, pp 2, cp 2, ring", of({.tensor = 2, .pipeline = 2, .context = ring2})}};
}

void print_plans(int rounds, bool by_wall, bool in_virtual_time) {
  fmt::print(
      "\n## Step time against `danlu plan`\n\n8 layers of 384, vocabulary 2048, f32; 256 tokens a "
      "micro-batch, 1024 on a context axis. Milliseconds; GFLOP/s of a thread, and what of it "
      "attention reaches: of the calibrations before and after.\n\n"
      "| mesh | time | measured | planned | planned / measured − 1 | GFLOP/s | attention |\n"
      "|---|---|---|---|---|---|---|\n");
  Comparison comparison(rounds);
  const std::vector<Named> rows = planned_rows();
  for (const Named& row : rows) {
    if (by_wall && row.training.mesh.size() <= 2) comparison.print(row, nullptr);
  }
  for (const Named& row : rows) {
    if (in_virtual_time) comparison.print(row, &kLinks);
  }
}

}  // namespace
}  // namespace danlu::bench

int main(int argc, char** argv) {
  // Each rank computes with its own thread alone; the library reads it when it is loaded.
  if (!std::getenv("OPENBLAS_NUM_THREADS")) {
    ::setenv("OPENBLAS_NUM_THREADS", "1", 1);
    ::execv("/proc/self/exe", argv);
  }
  int64_t rounds = 3;
  const std::set<std::string> parts{"bubble", "overlap", "context", "wall", "virtual"};
  const auto words = danlu::bench::parse_flags(
      argc, argv, {{"--rounds", danlu::bench::WholeNumber{&rounds}}}, parts.size());
  const std::set<std::string> asked(words.begin(), words.end());
  for (const std::string& part : asked)
    if (!parts.contains(part)) danlu::bench::refuse("schedule_bench", "unknown word " + part);
  const auto is_asked = [&](const char* part) { return asked.empty() || asked.contains(part); };
  if (is_asked("bubble")) danlu::bench::print_bubbles();
  if (is_asked("overlap")) danlu::bench::print_overlap();
  if (is_asked("context")) danlu::bench::print_context_bytes();
  const bool by_wall = is_asked("wall"), in_virtual_time = is_asked("virtual");
  if (by_wall || in_virtual_time)
    danlu::bench::print_plans(static_cast<int>(rounds), by_wall, in_virtual_time);
  return 0;
}
