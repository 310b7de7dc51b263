// `danlu plan`: memory, traffic and time of a training before it runs.
#include <fmt/format.h>

#include <cstdio>

#include "base/error.h"
#include "base/file.h"
#include "cli/commands/commands.h"
#include "plan/draw.h"
#include "plan/estimate.h"
#include "plan/fit.h"
#include "settings/options/from_options.h"
#include "settings/options/model_names.h"
#include "settings/options/processes.h"
#include "settings/options/recompute.h"
#include "settings/options/sharding.h"

namespace danlu::cli {
namespace {

plan::Request request_from(const Options& options) {
  plan::Request request;
  request.model = arch::load_model_config(settings::located_if_named(options.get_string("model")));
  request.precision = settings::training_precision(options);
  request.recompute = settings::recompute_from(options);
  request.offload = settings::activation_offload_from(options);
  request.sharding = settings::sharding_from(options);
  for (const std::string& what : options.get_list("offload")) {
    if (what != "optimizer")
      throw UsageError(tr("[plan] {} {}: only the optimizer's state is planned in host memory",
                          options.given_as("offload"), what),
                       tr("take --offload optimizer"));
    request.state_in_files = true;
  }
  const std::string fsdp = options.get_string_or("fsdp", "");
  if (fsdp.find("hybrid") != std::string::npos)
    throw UsageError(tr("[plan] --fsdp {}: sharing within each machine alone is not planned", fsdp),
                     tr("take full_shard or shard_grad_op, which all copies share"));
  if (fsdp.find("offload") != std::string::npos ||
      options.get_string_or("deepspeed", "").ends_with("_offload"))
    request.state_in_files = true;
  if (options.get_string("tuner") == "lora") {
    request.adapters = settings::new_adapters();
    request.adapters->rank = options.get_int("lora_rank");
  }
  request.freeze = options.get_list("freeze");
  request.tokens = options.get_int("max_length");
  request.micro_batch_size = options.get_int("batch_size");
  return request;
}

int64_t world_of(const Options& options, const plan::Machine& machine) {
  if (!options.has_value("devices"))
    return options.get_int("nnodes") * options.get_int_or("nproc", machine.devices_per_node);
  for (const char* name : {"nnodes", "nproc"}) {
    if (options.is_given(name))
      throw UsageError(tr("[plan] {} is of all machines: give it, or {}",
                          options.given_as("devices"), options.given_as(name)));
  }
  return options.get_int("devices");
}

void put_micro_batches(const Options& options, plan::Request& request) {
  const int64_t pass = request.mesh.data * request.micro_batch_size;
  // A global batch given by the user outweighs an accumulation that only a profile chose.
  const bool only_by_profile = options.source("accum") == OptionSource::kProfile;
  if (options.has_value("accum") && !(only_by_profile && options.is_given("global_batch_size"))) {
    request.num_micro_batches = options.get_int("accum");
    const int64_t samples = pass * request.num_micro_batches;
    if (options.is_given("global_batch_size") && samples != options.get_int("global_batch_size"))
      throw UsageError(
          tr("[plan] {} {} of {} samples on {} copies make {}, {} says {}",
             options.given_as("accum"), request.num_micro_batches, request.micro_batch_size,
             request.mesh.data, samples, options.given_as("global_batch_size"),
             options.get_int("global_batch_size")),
          tr("give one of them"));
    return;
  }
  const int64_t samples = options.get_int("global_batch_size");
  if (samples % pass != 0) {
    throw UsageError(tr("[plan] --global_batch_size {} is no multiple of {} copies × {} samples",
                        samples, request.mesh.data, request.micro_batch_size),
                     tr("take --global_batch_size {}", (samples / pass + 1) * pass));
  }
  request.num_micro_batches = samples / pass;
}

/// What is left of the devices is the data axis.
void share_out(const Options& options, int64_t world, plan::Request& request) {
  request.mesh = settings::mesh_from(options, world);
  settings::require_shared_heads(options, request.model, request.mesh);
  request.pipeline = settings::pipeline_from(options);
  request.mesh.ring = request.pipeline.is_virtual();
  request.order = settings::order_from(options, request.pipeline);
  const int64_t chunks = arch::stages_of(request.model, request.pipeline)[0].num_chunks();
  // Virtual stages of which each stage has one are none.
  if (request.pipeline.is_virtual() && chunks == 1) {
    request.mesh.ring = false;
    request.order = arch::PipelineOrder::kOneForwardOneBackward;
  }
  put_micro_batches(options, request);
  const int64_t stages = request.mesh.pipeline;
  settings::require_schedule(
      {request.order, request.sharding, stages, chunks, request.num_micro_batches},
      fmt::format("--global_batch_size {}", stages * request.mesh.data * request.micro_batch_size));
}

/// --auto looks for these itself.
void require_free(const Options& options) {
  for (const char* name :
       {"tp", "pp", "dp", "batch_size", "accum", "shard", "use_distributed_optimizer", "deepspeed",
        "fsdp", "num_layer_list", "noop_layers", "num_layers_per_virtual_pipeline_stage",
        "num_virtual_stages_per_pipeline_rank", "pipeline_schedule", "enable_zero_bubble",
        "sequence_parallel"}) {
    if (options.is_given(name))
      throw UsageError(tr("[plan] --auto looks for {} itself", options.given_as(name)),
                       tr("leave it out; or leave out --auto for the plan of these flags"));
  }
  if (options.has_value("draw"))
    throw UsageError(tr("[plan] --auto finds ten plans, --draw draws one"),
                     tr("draw the plan that you choose, with its flags and without --auto"));
}

/// Whose defaults hold, where the line chose a system's.
std::string profile_line(const Options& options) {
  const ProfileChoice& profile = options.profile();
  if (profile.by.empty()) return "";
  return fmt::format("{:<23}{}\n", tr("defaults"),
                     tr("of {}, chosen by {}", profile.name, profile.by));
}

int search(const Options& options, const plan::Request& request, const plan::Machine& machine,
           int64_t world) {
  const auto plans = plan::search_plans(
      request, machine, {.world = world, .samples = options.get_int("global_batch_size")});
  if (plans.empty())
    throw UsageError(tr("[plan] no split of {} devices divides this model and {} samples a step",
                        world, options.get_int("global_batch_size")));
  Json json = Json::array();
  if (!options.get_bool("json")) fmt::print("{}{}\n", profile_line(options), plan::describe_head());
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

/// "1F1B, 4 stages, 8 micro-batches"
std::string title_of(const plan::Request& request) {
  std::string order = "1F1B";
  if (request.order == arch::PipelineOrder::kZeroBubble) order = "zero bubble";
  if (request.order == arch::PipelineOrder::kInterleaved) order = "interleaved";
  return fmt::format("{}, {} stages, {} micro-batches", order, request.mesh.pipeline,
                     request.num_micro_batches);
}

}  // namespace

/// Nothing but a picture is replaced by one.
void require_picture(const Options& options) {
  if (!options.has_value("draw")) return;
  const std::string name = options.get_string("draw");
  if (name.ends_with(".svg")) return;
  throw UsageError(tr("[plan] --draw {}: the picture is SVG", name), tr("name it FILE.svg"));
}

int run_plan(const Options& options) {
  require_picture(options);
  plan::Machine machine = plan::load_machine(options.get_string("machine"));
  if (const int64_t used = options.get_int_or("nproc", machine.devices_per_node);
      used > machine.devices_per_node) {
    throw UsageError(tr("[plan] {} {}: {} has {} devices", options.given_as("nproc"), used,
                        machine.name, machine.devices_per_node),
                     tr("take more machines: --nnodes"));
  } else {
    machine.devices_per_node = used;
  }
  const int64_t world = world_of(options, machine);
  plan::Request request = request_from(options);
  request.widens = machine.peak(request.precision) <= machine.f32_flops;
  if (options.get_bool("auto")) {
    require_free(options);
    if (request.recompute.granularity == "auto") request.recompute = {};
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
  plan::Plan plan = plan::make_plan(request, machine);
  plan.save_steps = options.get_int_or("save_steps", 0);
  if (options.has_value("draw"))
    write_file_atomic(options.get_string("draw"),
                      plan::draw_schedule(plan.simulated, title_of(request)));
  fmt::print("{}", options.get_bool("json")
                       ? plan::to_json(plan).dump(2) + "\n"
                       : profile_line(options) + chosen + plan::describe(plan));
  return 0;
}

}  // namespace danlu::cli
