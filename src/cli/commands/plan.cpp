// `danlu plan`: memory, traffic and time of a training before it runs.
#include <fmt/format.h>

#include <cstdio>

#include "base/error.h"
#include "base/file.h"
#include "cli/commands/commands.h"
#include "cli/commands/inference_options.h"
#include "cli/commands/train_options.h"
#include "plan/draw.h"
#include "plan/estimate.h"
#include "plan/fit.h"
#include "settings/options/processes.h"
#include "settings/options/recompute.h"

namespace danlu::cli {
namespace {

OptionSpec size(std::string name, std::string text, std::string help,
                std::vector<std::string> aliases, std::string group) {
  return {.name = std::move(name),
          .type = OptionType::kInt,
          .default_text = std::move(text),
          .help = std::move(help),
          .aliases = std::move(aliases),
          .range = at_least(1),
          .group = std::move(group)};
}

settings::Sharding sharding_of(const std::string& name) {
  if (name == "none") return settings::Sharding::kNone;
  return static_cast<settings::Sharding>(name.back() - '0');
}

settings::Precision precision_of(const std::string& name) {
  if (name == "f32") return settings::Precision::kF32;
  return name == "f16" ? settings::Precision::kF16 : settings::Precision::kBF16;
}

plan::Request request_from(const Options& options) {
  plan::Request request;
  request.model = arch::load_model_config(options.get_string("model"));
  request.precision = precision_of(options.get_string("precision"));
  request.recompute = settings::recompute_from(options);
  request.offload = settings::activation_offload_from(options);
  request.sharding = sharding_of(options.get_string("shard"));
  if (options.get_string("tuner") == "lora") {
    request.adapters = settings::new_adapters();
    request.adapters->rank = options.get_int("lora_rank");
  }
  request.tokens = options.get_int("max_length");
  request.micro_batch_size = options.get_int("batch_size");
  return request;
}

/// What is left of the devices is the data axis.
void share_out(const Options& options, int64_t world, plan::Request& request) {
  request.mesh = settings::mesh_from(options, world);
  settings::require_shared_heads(options, request.model, request.mesh);
  request.pipeline = settings::pipeline_from(options);
  request.order = settings::order_from(options, request.pipeline);
  const int64_t pass = request.mesh.data * request.micro_batch_size;
  const int64_t samples = options.get_int("global_batch_size");
  if (samples % pass != 0) {
    throw UsageError(tr("[plan] --global_batch_size {} is no multiple of {} copies × {} samples",
                        samples, request.mesh.data, request.micro_batch_size),
                     tr("take --global_batch_size {}", (samples / pass + 1) * pass));
  }
  request.num_micro_batches = samples / pass;
}

int search(const Options& options, const plan::Request& request, const plan::Machine& machine,
           int64_t world) {
  const auto plans =
      plan::search_plans(request, machine, world, options.get_int("global_batch_size"), 10);
  if (plans.empty())
    throw UsageError(tr("[plan] no split of {} devices divides this model and {} samples a step",
                        world, options.get_int("global_batch_size")));
  Json json = Json::array();
  for (const plan::Plan& plan : plans) {
    if (options.get_bool("json")) {
      json.push_back(plan::to_json(plan));
    } else {
      fmt::print("{}\n", plan::describe_line(plan));
    }
  }
  if (options.get_bool("json")) fmt::print("{}\n", json.dump(2));
  return 0;
}

}  // namespace

std::vector<OptionSpec> planned_training_options() {
  const std::string what = "Training", split = "Model parallelism", out = "Output";
  return {
      {.name = "model",
       .help = "model directory or config.json; no weights are read",
       .aliases = {"model_name_or_path", "m"},
       .group = what,
       .required = true},
      {.name = "machine",
       .default_text = "atlas-800t-a2",
       .help = "atlas-800t-a2, a100-80g, h100-80g, cpu-node, or a file as recipes/machines has",
       .group = what},
      size("nodes", "1", "machines", {"nnodes"}, what),
      {.name = "devices",
       .type = OptionType::kInt,
       .help = "processes, one a device; not given: all of the nodes",
       .aliases = {"nproc"},
       .range = at_least(1),
       .group = what},
      {.name = "tuner",
       .default_text = "full",
       .help = "what is trained: all, or adapters on every linear layer",
       .choices = {"full", "lora"},
       .group = what},
      size("lora_rank", "8", "rank of the adapters", {"lora_r"}, what),
      {.name = "precision",
       .default_text = "bf16",
       .help = "type of the weights and passes",
       .choices = {"bf16", "f16", "f32"},
       .group = what},
      size("max_length", "4096", "tokens of a sample", {"seq_length"}, what),
      size("batch_size", "1", "samples of a pass",
           {"micro_batch_size", "per_device_train_batch_size"}, what),
      size("global_batch_size", "64", "samples of a step", {}, what),
      {.name = "shard",
       .default_text = "none",
       .help = "what copies of the model share: zero1 the optimizer's state, zero2 gradients too, "
               "zero3 parameters too",
       .choices = {"none", "zero1", "zero2", "zero3"},
       .group = split},
      {.name = "auto",
       .type = OptionType::kBool,
       .default_text = "false",
       .help = "search splits, sharding, recompute and batch sizes; show the ten fastest that fit",
       .group = out},
      {.name = "draw", .help = "write a picture of the schedule to this .svg file", .group = out},
      {.name = "json",
       .type = OptionType::kBool,
       .default_text = "false",
       .help = "print JSON",
       .group = out}};
}

OptionTable plan_options() {
  std::vector<OptionSpec> own = planned_training_options();
  // As the training commands have them.
  for (OptionSpec& spec : train_recompute_options()) own.push_back(std::move(spec));
  for (OptionSpec& spec : train_parallel_options()) {
    if (spec.group == "Model parallelism") own.push_back(std::move(spec));
  }
  return OptionTable("plan", "memory, traffic and time of a training before it runs",
                     "danlu plan --model DIR [--machine NAME|FILE] [flags]", std::move(own));
}

int run_plan(const Options& options) {
  const plan::Machine machine = plan::load_machine(options.get_string("machine"));
  const int64_t world =
      options.get_int_or("devices", options.get_int("nodes") * machine.devices_per_node);
  plan::Request request = request_from(options);
  request.widens = machine.peak(request.precision) <= machine.f32_flops;
  if (options.get_bool("auto")) {
    request.mesh.context = settings::mesh_from(options, world).context;
    return search(options, request, machine, world);
  }
  share_out(options, world, request);
  std::string chosen;
  if (request.recompute.granularity == "auto") {
    const auto room = static_cast<int64_t>(machine.memory_bytes / (1 + machine.allocator));
    const plan::RecomputeChoice choice = plan::least_recompute(request, room);
    request.recompute = choice.flags;
    chosen = tr("recompute auto: {}", plan::explain(choice, room)) + "\n";
  }
  const plan::Plan plan = plan::make_plan(request, machine);
  if (options.has_value("draw")) {
    const std::string title = fmt::format("{} stages, {} micro-batches", request.mesh.pipeline,
                                          request.num_micro_batches);
    write_file_atomic(options.get_string("draw"), plan::draw_schedule(plan.simulated, title));
  }
  fmt::print("{}", options.get_bool("json") ? plan::to_json(plan).dump(2) + "\n"
                                            : chosen + plan::describe(plan));
  return 0;
}

}  // namespace danlu::cli
