#include "settings/options/processes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "base/divisors.h"
#include "base/error.h"
#include "base/log.h"

namespace danlu::settings {
namespace {

std::string sizes_that_fit(const std::string& flag, int64_t tensor, int64_t processes) {
  return tr("for {} processes {} may be {}; {} {} needs a multiple of {} processes, such as {}",
            processes, flag, fmt::join(divisors(processes), ", "), flag, tensor, tensor,
            (processes / tensor + 1) * tensor);
}

/// How many neighbours on the data axis divide a layer's experts, and among how many runs of the
/// tensor axis: MindSpeed counts the former alone, Megatron both.
void divide_experts(const Options& options, MeshShape& shape) {
  shape.expert = options.get_int_or("ep", 1);
  const bool extends = options.get_bool_or("moe_tp_extend_ep", false);
  const int64_t cut = options.get_int_or("expert_tensor_parallel_size", extends ? 1 : shape.tensor);
  const std::string flag = options.given_as("expert_tensor_parallel_size");
  if (cut > shape.tensor) {
    throw UsageError(
        tr("[train] {} {}: {} tensor-parallel processes cut an expert among them, and no more",
           flag, cut, shape.tensor),
        tr("a larger {} cuts experts further, a larger {} gives each process fewer of them",
           options.given_as("tp"), options.given_as("ep")));
  }
  if (shape.tensor % cut != 0 || (extends && cut != 1)) {
    throw UsageError(
        tr("[train] {} {} of {} tensor-parallel processes: those that cut an expert "
           "divide them",
           flag, cut, shape.tensor),
        tr("one of {}",
           extends ? "1" : fmt::format("{}", fmt::join(divisors(shape.tensor), ", "))));
  }
  shape.expert_dealers = shape.tensor / cut;
  if (shape.expert_dealers == 1 || extends) return;
  if (shape.expert % shape.expert_dealers != 0) {
    throw UsageError(
        tr("[train] {} {} with {} {}: of {} tensor-parallel processes {} have experts of their own",
           flag, cut, options.given_as("ep"), shape.expert, shape.tensor, shape.expert_dealers),
        tr("give a multiple of {} as {}", shape.expert_dealers, options.given_as("ep")));
  }
  shape.expert /= shape.expert_dealers;
}

ContextShape context_from(const Options& options) {
  ContextShape shape;
  const int64_t size = options.get_int_or("cp", 1);
  const std::string algorithm = options.get_string_or("context_parallel_algo", "ulysses_cp_algo");
  const std::string said =
      fmt::format("{} {}", options.given_as("context_parallel_algo"), algorithm);
  if (algorithm.find("adaptive") != std::string::npos) {
    throw UsageError(
        tr("[train] {}: adaptive context parallelism is not part of this version", said),
        tr("packed samples need none: attention never crosses their borders; take "
           "megatron_cp_algo or hybrid_cp_algo"));
  }
  const bool is_hybrid = algorithm == "hybrid_cp_algo",
             has_degree = options.has_value("ulysses_degree_in_cp");
  if (has_degree && !is_hybrid && size > 1) {
    // Scripts of MindSpeed-LLM have both, and mean that all of them exchange heads.
    if (algorithm != "ulysses_cp_algo") {
      throw UsageError(tr("[train] {}: it is of hybrid_cp_algo, and {} was given",
                          options.given_as("ulysses_degree_in_cp"), said),
                       tr("add --context-parallel-algo hybrid_cp_algo, or leave it out"));
    }
    log::notice("{} has no effect with {}: all {} processes exchange heads",
                options.given_as("ulysses_degree_in_cp"), said, size);
  }
  if (is_hybrid && !has_degree && size > 1) {
    throw UsageError(tr("[train] {}: how many processes exchange heads is not said", said),
                     tr("add --ulysses-degree-in-cp: one of {}", fmt::join(divisors(size), ", ")));
  }
  shape.ulysses = !is_hybrid ? (algorithm == "ulysses_cp_algo" ? size : 1)
                  : size > 1 ? options.get_int("ulysses_degree_in_cp")
                             : 1;
  if (size % shape.ulysses != 0) {
    throw UsageError(
        tr("[train] {} {} does not divide {} {}", options.given_as("ulysses_degree_in_cp"),
           shape.ulysses, options.given_as("cp"), size),
        tr("one of {}", fmt::join(divisors(size), ", ")));
  }
  shape.ring = size / shape.ulysses;
  const int64_t window = options.get_int_or("cp_window_size", 1);
  if (window > 1 && size > 1 && shape.ring % window != 0) {
    throw UsageError(tr("[train] {} {} does not divide the {} processes of a ring ({})",
                        options.given_as("cp_window_size"), window, shape.ring, said),
                     tr("one of {}", fmt::join(divisors(shape.ring), ", ")));
  }
  shape.window = window > 1 && size > 1 ? window : shape.ring;
  return shape;
}

}  // namespace

void explain_processes(const Options& options, const RankPlace& place) {
  // A variable was for whoever started the ranks.
  if (!options.is_given("nproc") || options.get_int("nproc") == place.local_size) return;
  log::notice("{} {}: {} processes run on this machine, as they were started",
              options.given_as("nproc"), options.get_int("nproc"), place.local_size);
}

MeshShape mesh_from(const Options& options, int64_t processes) {
  MeshShape shape;
  shape.tensor = options.get_int_or("tp", 1);
  shape.pipeline = options.get_int_or("pp", 1);
  shape.context = context_from(options);
  const int64_t copy = shape.per_batch();
  const int64_t dp = options.get_int_or("dp", 1);
  const auto asked = [&](const std::vector<const char*>& axes, bool with_sizes) {
    std::vector<std::string> texts;
    for (const char* name : axes) {
      if (options.get_int_or(name, 1) == 1) continue;
      texts.push_back(with_sizes
                          ? fmt::format("{} {}", options.given_as(name), options.get_int(name))
                          : options.given_as(name));
    }
    return texts;
  };
  if (const int64_t needed = copy * dp; processes == 1 && needed > 1) {
    throw UsageError(tr("[train] {}: for {} processes, and one runs",
                        fmt::join(asked({"tp", "pp", "cp", "dp"}, true), ", "), needed),
                     tr("add --nproc_per_node {} to the line: it starts them", needed));
  }
  if (processes % copy != 0) {
    throw UsageError(
        tr("[train] {}: {} processes are no multiple of it",
           fmt::join(asked({"tp", "pp", "cp"}, true), " × "), processes),
        sizes_that_fit(fmt::format("{}", fmt::join(asked({"tp", "pp", "cp"}, false), " × ")), copy,
                       processes));
  }
  shape.data = processes / copy;
  if (dp != 1 && dp != shape.data) {
    throw UsageError(tr("[train] {} {}: {} processes of {} a copy of the model make {}",
                        options.given_as("dp"), dp, processes, copy, shape.data),
                     tr("leave it out: it follows from the others"));
  }
  divide_experts(options, shape);
  shape.overlaps_experts = options.get_bool_or("moe_shared_expert_overlap", true);
  if (shape.data % shape.expert != 0) {
    throw UsageError(
        tr("[train] {} {} does not divide the {} data-parallel processes, among which experts are "
           "divided",
           options.given_as("ep"), shape.expert, shape.data),
        tr("one of {}", fmt::join(divisors(shape.data), ", ")));
  }
  shape.sequence_parallel = shape.tensor > 1 && options.has_value("sequence_parallel") &&
                            options.get_bool("sequence_parallel");
  return shape;
}

void require_shared_experts(const Options& options, const arch::ModelConfig& model,
                            const MeshShape& shape) {
  const int64_t owners = shape.expert * shape.expert_dealers;
  if (owners == 1) return;
  const char* const flag = shape.expert > 1 || options.has_value("ep") ? "ep" : "moe_tp_extend_ep";
  if (!model.has_experts()) {
    throw UsageError(tr("[train] {} {}: {} has no experts to divide", options.given_as(flag),
                        owners, model.family),
                     tr("leave it out; --tensor-model-parallel-size divides every layer, "
                        "--pipeline-model-parallel-size the layers"));
  }
  if (model.experts.count % owners != 0) {
    throw UsageError(tr("[train] {} {} does not divide the {} experts of a layer",
                        options.given_as(flag), owners, model.experts.count),
                     tr("one of {}", fmt::join(divisors(model.experts.count), ", ")));
  }
  const int64_t neighbours = shape.context.size() * shape.expert;
  if (shape.are_some_sharers() && shape.sharers % neighbours != 0) {
    throw UsageError(
        tr("[train] {} neighbours that share cannot have every expert of {} between them",
           shape.sharers, shape.expert),
        tr("a multiple of {} can", neighbours));
  }
}

void require_shared_heads(const Options& options, const arch::ModelConfig& model,
                          const MeshShape& shape) {
  const int64_t members = shape.context.ulysses;
  const int64_t heads = model.num_heads / shape.tensor;
  const int64_t kv_heads = std::max<int64_t>(1, model.num_kv_heads / shape.tensor);
  if (can_share_heads(heads, kv_heads, members)) return;
  std::vector<int64_t> sizes = divisors(heads);
  std::erase_if(sizes, [&](int64_t size) { return !can_share_heads(heads, kv_heads, size); });
  const bool is_hybrid = options.get_string("context_parallel_algo") == "hybrid_cp_algo";
  throw UsageError(
      tr("[train] {} {}: the {} query and {} key/value heads that a tensor rank has cannot be "
         "shared by {}",
         options.given_as(is_hybrid ? "ulysses_degree_in_cp" : "cp"), members, heads, kv_heads,
         members),
      tr("{} share them; --context-parallel-algo megatron_cp_algo divides no heads",
         fmt::format("{}", fmt::join(sizes, ", "))));
}

void require_schedule(const ScheduleOf& schedule, const std::string& remedy) {
  if (schedule.order == arch::PipelineOrder::kZeroBubble &&
      schedule.sharding >= Sharding::kGradients) {
    throw UsageError(
        tr("[train] the zero-bubble schedule leaves gradients of weights for later, which --shard "
           "zero2 and zero3 divide at once"),
        tr("take --shard zero1, or --pipeline_schedule 1f1b"));
  }
  if (schedule.chunks == 1 || schedule.micro_batches >= schedule.stages) return;
  throw UsageError(
      tr("[train] virtual stages need at least as many micro-batches a step as pipeline stages: "
         "{} for {} stages",
         schedule.micro_batches, schedule.stages),
      tr("give {}, or leave virtual stages out", remedy));
}

arch::PipelineLayers pipeline_from(const Options& options) {
  arch::PipelineLayers split;
  split.stages = options.get_int_or("pp", 1);
  if (split.stages == 1) return split;
  split.layer_list = options.get_int_list("num_layer_list");
  split.noop_layers = options.get_int_list("noop_layers");
  std::sort(split.noop_layers.begin(), split.noop_layers.end());
  split.layers_per_virtual_stage = options.get_int_or("num_layers_per_virtual_pipeline_stage", 0);
  split.virtual_stages = options.get_int_or("num_virtual_stages_per_pipeline_rank", 0);
  if (split.virtual_stages == 1) split.virtual_stages = 0;  // a run of layers a stage is none
  if (split.layers_per_virtual_stage > 0 && split.virtual_stages > 0) {
    throw UsageError(tr("[train] {} and {} say the same: give one",
                        options.given_as("num_layers_per_virtual_pipeline_stage"),
                        options.given_as("num_virtual_stages_per_pipeline_rank")));
  }
  return split;
}

void put_end_stages(const Options& options, int64_t num_layers, arch::PipelineLayers& split) {
  constexpr const char* kFirst = "decoder_first_pipeline_num_layers";
  constexpr const char* kLast = "decoder_last_pipeline_num_layers";
  const bool first = options.has_value(kFirst), last = options.has_value(kLast);
  if (split.stages == 1 || (!first && !last)) return;
  const std::string flag = options.given_as(first ? kFirst : kLast);
  if (!split.layer_list.empty())
    throw UsageError(
        tr("[train] {} beside {}; give one", flag, options.given_as("num_layer_list")));
  std::vector<int64_t> layers(static_cast<size_t>(split.stages), 0);
  int64_t rest = num_layers + static_cast<int64_t>(split.noop_layers.size());
  if (first) rest -= layers.front() = options.get_int(kFirst);
  if (last) rest -= layers.back() = options.get_int(kLast);
  const int64_t sharers = split.stages - first - last;
  const bool fits = sharers > 0 ? rest >= sharers && rest % sharers == 0 : rest == 0;
  if (!fits) {
    throw UsageError(
        tr("[train] {}: of the model's {} layers {} are left, which the other {} stages of {} "
           "cannot share evenly",
           flag, num_layers, rest, sharers, split.stages),
        tr("--num-layer-list names the layers of each stage"));
  }
  for (int64_t i = first; i < split.stages - last; ++i)
    layers[static_cast<size_t>(i)] = rest / sharers;
  split.layer_list = layers;
}

arch::PipelineOrder order_from(const Options& options, const arch::PipelineLayers& split) {
  using arch::PipelineOrder;
  const std::string named = options.get_string_or("pipeline_schedule", "");
  const bool enabled = options.get_bool_or("enable_zero_bubble", false);
  if (split.stages == 1) return PipelineOrder::kOneForwardOneBackward;
  const std::string by = enabled ? options.given_as("enable_zero_bubble")
                                 : options.given_as("pipeline_schedule") + " " + named;
  if (enabled && !named.empty() && named != "zero-bubble") {
    throw UsageError(tr("[train] {} asks for zero-bubble, {} for {}", by,
                        options.given_as("pipeline_schedule"), named),
                     tr("give one of them"));
  }
  const bool zero_bubble = enabled || named == "zero-bubble";
  if (split.is_virtual() && (zero_bubble || named == "1f1b")) {
    throw UsageError(
        tr("[train] {}: not with virtual stages, which go interleaved", by),
        tr("leave {} out, or give --pipeline_schedule interleaved",
           split.virtual_stages > 0 ? options.given_as("num_virtual_stages_per_pipeline_rank")
                                    : options.given_as("num_layers_per_virtual_pipeline_stage")));
  }
  if (!split.is_virtual() && named == "interleaved") {
    throw UsageError(tr("[train] {}: needs virtual stages", by),
                     tr("give the layers of each: --num_layers_per_virtual_pipeline_stage 1"));
  }
  if (zero_bubble) return PipelineOrder::kZeroBubble;
  return split.is_virtual() ? PipelineOrder::kInterleaved : PipelineOrder::kOneForwardOneBackward;
}

Processes processes_from(const Options& options, const RankPlace& place, bool is_planned) {
  Processes processes;
  processes.place = place;
  const int64_t all =
      is_planned ? place.size : std::max(place.size, restart_from_environment().ranks);
  processes.mesh = mesh_from(options, all);
  processes.data_ranks_of_job = processes.mesh.data;
  const int64_t copy = processes.mesh.per_batch();
  if (place.size % copy != 0) {
    throw UsageError(tr("[train] a micro-batch takes {} ranks: of {} ranks {} are left, "
                        "which are no multiple of it",
                        copy, all, place.size),
                     tr("the same command goes on when all machines are there again"));
  }
  processes.mesh.data = place.size / copy;
  processes.pipeline = pipeline_from(options);
  processes.order = order_from(options, processes.pipeline);
  processes.mesh.ring = processes.pipeline.is_virtual();
  processes.shares_cache = !options.get_bool_or("no_shared_storage", false);
  processes.dist_timeout_s = options.has_value("distributed_timeout_minutes")
                                 ? 60 * options.get_float("distributed_timeout_minutes")
                                 : options.get_float("ddp_timeout");
  return processes;
}

}  // namespace danlu::settings
