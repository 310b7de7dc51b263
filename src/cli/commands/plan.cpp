// `danlu plan`: memory, traffic and time of a training before it runs.
#include <fmt/format.h>

#include <cstdio>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "cli/commands/commands.h"
#include "plan/data_pictures.h"
#include "plan/draw.h"
#include "plan/estimate.h"
#include "plan/fit.h"
#include "settings/options/from_options.h"
#include "settings/options/processes.h"
#include "settings/run_plan.h"

namespace danlu::cli {
namespace {

/// The training that the line names, else "plan": its options are then those of plan alone.
std::string verb_of(const Options& options) {
  const std::vector<std::string>& words = options.positional();
  return words.empty() ? settings::kPlanVerb : words.front();
}

/// What the line says, else what its data hold. Errors: UsageError for more than a sample has.
void set_pictures(const Options& options, const settings::TrainConfig& config,
                  plan::Request& request) {
  if (!options.has_value("visual_tokens")) {
    const auto found = request.model.vision ? plan::pictures_in_data(config) : std::nullopt;
    if (!found) return;
    request.patches = found->most_patches;
    request.frame_patches = found->most_frame_patches;
    request.samples_looked_at = found->samples;
    request.mean_visual_tokens = found->mean_visual_tokens();
    return;
  }
  const int64_t tokens = options.get_int("visual_tokens");
  if (tokens > 0 && !request.model.vision) {
    throw UsageError(tr("[plan] {}: {} reads text alone", options.given_as("visual_tokens"),
                        request.model.family));
  }
  if (tokens > request.longest) {
    throw UsageError(tr("[plan] {} {}: a sample has {} tokens", options.given_as("visual_tokens"),
                        tokens, request.longest));
  }
  request.set_visual_tokens(tokens);
}

/// Errors: UsageError for a model without experts, and for less than the mean.
void set_imbalance(const Options& options, plan::Request& request) {
  if (!options.has_value("expert_imbalance")) return;
  const double imbalance = options.get_float("expert_imbalance");
  if (!request.model.has_experts() && options.is_given("expert_imbalance")) {
    throw UsageError(tr("[plan] {}: {} has no experts", options.given_as("expert_imbalance"),
                        request.model.family));
  }
  request.expert_imbalance = imbalance;
}

/// Rows of embeddings may have more texts than the line says.
void say_texts_of_rows(const settings::TrainConfig& config) {
  const settings::EmbeddingConfig& embedding = config.objective.embedding;
  const bool is_open = config.objective.kind == settings::ObjectiveKind::kEmbedding &&
                       !embedding.has_pairs() && embedding.hard_negatives == 0;
  if (!is_open) return;
  log::notice(
      "[plan] a row is counted as its text and one that fits it; each negative text has up to {} "
      "tokens more (--infonce_hard_negatives says how many a row has)",
      config.data.max_length);
}

/// What a machine file says of a training beside what the training is told.
plan::Request request_on(const Options& options, const plan::Machine& machine,
                         const settings::PlannedTraining& planned) {
  const settings::TrainConfig& config = planned.config;
  plan::Request request = plan::request_of(config, planned.model, config.longest_sample());
  say_texts_of_rows(config);
  set_pictures(options, config, request);
  set_imbalance(options, request);
  request.widens = machine.peak(request.precision) <= machine.f32_flops;
  if (machine.is_host) {
    const bool leaves = request.offload.to == settings::OffloadTo::kHost;
    if (leaves) request.offload.to = settings::OffloadTo::kNone;
    if (leaves || config.wants_state_in_host || config.wants_parameters_in_host)
      log::notice("[plan] {} computes in its host's memory: nothing is offloaded to it",
                  machine.name);
    return request;
  }
  if (config.wants_parameters_in_host && !request.parameters_in_files)
    throw UsageError(tr("[plan] {} {}: only the optimizer's state is planned in host memory",
                        config.flag("offload"), "params"),
                     tr("take --offload optimizer"));
  request.state_in_files |= config.wants_state_in_host;
  if (request.state_in_files && !request.adamw.is_plain()) {
    throw UsageError(
        tr("[plan] this optimizer's matrices are updated where the model is, not in host memory"),
        tr("leave {} out; --shard zero1 shares the state among processes", config.flag("offload")));
  }
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

/// --auto looks for these itself.
void require_free_of_run(const Options& options) {
  for (const char* name :
       {"tp", "pp", "dp", "ep", "batch_size", "accum", "shard", "use_distributed_optimizer",
        "deepspeed", "fsdp", "num_layer_list", "decoder_first_pipeline_num_layers",
        "decoder_last_pipeline_num_layers", "noop_layers", "num_layers_per_virtual_pipeline_stage",
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

/// Samples of a step where the micro-batches are still to be found.
int64_t samples_of(const Options& options, const settings::TrainConfig& config, int64_t copies) {
  if (options.has_value("global_batch_size")) return options.get_int("global_batch_size");
  settings::BatchConfig batch = config.batch;
  batch.ranks = copies;
  return settings::samples_of_step(batch);
}

int search(const Options& options, const plan::Machine& machine, int64_t world) {
  require_free_of_run(options);
  const settings::ContextShape context = settings::mesh_from(options, world).context;
  // One copy of the model: how many there are is looked for too.
  const settings::PlannedTraining planned = settings::planned_training(
      verb_of(options), options, context.size(), machine.devices_per_node);
  plan::Request request = request_on(options, machine, planned);
  if (request.recompute.granularity == "auto") request.recompute = {};
  const int64_t samples = samples_of(options, planned.config, world / context.size());
  const auto plans = plan::search_plans(request, machine, {.world = world, .samples = samples});
  if (plans.empty())
    throw UsageError(tr("[plan] no split of {} devices divides this model and {} samples a step",
                        world, samples));
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

/// Refuses a --draw file that does not end in .svg, so that no other file is overwritten.
void require_picture(const Options& options) {
  if (!options.has_value("draw")) return;
  const std::string name = options.get_string("draw");
  if (name.ends_with(".svg")) return;
  throw UsageError(tr("[plan] --draw {}: the picture is SVG", name), tr("name it FILE.svg"));
}

}  // namespace

int run_plan(const Options& line) {
  const Options options = verb_of(line) == settings::kPlanVerb ? line.without_ignored() : line;
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
  if (options.get_bool("auto")) return search(options, machine, world);
  const settings::PlannedTraining planned =
      settings::planned_training(verb_of(options), options, world, machine.devices_per_node);
  settings::require_whole_groups(planned.config);
  plan::Request request = request_on(options, machine, planned);
  std::string chosen;
  if (request.recompute.granularity == "auto") {
    const auto room = static_cast<int64_t>(machine.memory_bytes / (1 + machine.allocator));
    const plan::RecomputeChoice choice = plan::least_recompute(request, room);
    request.recompute = choice.flags;
    chosen = tr("recompute auto: {}", plan::explain(choice, room)) + "\n";
  }
  plan::Plan plan = plan::make_plan(request, machine);
  const settings::OutputConfig& output = planned.config.output;
  // What nobody asked for costs nothing here.
  if (options.is_set("save_steps") && output.save == settings::Interval::kSteps &&
      output.shares.save == 0)
    plan.save_steps = output.save_steps;
  if (options.has_value("draw"))
    write_file_atomic(options.get_string("draw"),
                      plan::draw_schedule(plan.simulated, title_of(request)));
  fmt::print("{}", options.get_bool("json")
                       ? plan::to_json(plan).dump(2) + "\n"
                       : profile_line(options) + chosen + plan::describe(plan));
  return 0;
}

}  // namespace danlu::cli
