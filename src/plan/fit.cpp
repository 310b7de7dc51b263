#include "plan/fit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "base/error.h"
#include "base/progress.h"
#include "plan/layer_memory.h"
#include "plan/layer_work.h"
#include "weights/lora/adapter_places.h"

namespace danlu::plan {
namespace {

using settings::RecomputeFlags, settings::Sharding;

std::vector<std::string> changes(const Request& from, const Request& to) {
  std::vector<std::string> flags;
  const auto change = [&](const char* flag, const auto& value) {
    flags.push_back(fmt::format("--{} {}", flag, value));
  };
  if (to.adapters && !from.adapters) change("tuner", "lora");
  if (to.micro_batch_size != from.micro_batch_size)
    flags.push_back(fmt::format("--batch_size {} --gradient_accumulation_steps {}",
                                to.micro_batch_size, to.num_micro_batches));
  if (to.sharding != from.sharding)
    change("shard", fmt::format("zero{}", static_cast<int>(to.sharding)));
  if (to.recompute != from.recompute) {
    if (to.recompute.granularity != from.recompute.granularity)
      change("recompute", to.recompute.granularity);
    // What else was asked for stays on the command line unless it is taken back.
    if (from.recompute.method == "block") change("recompute-method", "uniform");
    if (from.recompute.num_layers.value_or(1) > 1) change("recompute-num-layers", 1);
    if (from.recompute.activation_function) flags.push_back("--no-recompute-activation-function");
    if (from.recompute.norm) flags.push_back("--no-recompute-norm");
  }
  return flags;
}

/// What is asked for, and what keeps less.
std::vector<RecomputeFlags> with_less_kept(const RecomputeFlags& from) {
  const RecomputeFlags none, selective{.granularity = "selective"}, full{.granularity = "full"};
  std::vector<RecomputeFlags> all{from};
  if (from == none) all.push_back(selective);
  const bool is_least =
      from.granularity == "full" && from.method != "block" && from.num_layers.value_or(1) == 1;
  if (!is_least) all.push_back(full);
  return all;
}

/// What the stage that runs the most again runs again, as a share of what its layers have.
double share_run_again(const Request& request) {
  double most = 0;
  const bool goes_through_tower = tower_learns(request);
  for (const arch::Stage& stage : arch::stages_of(request.model, request.pipeline)) {
    double again = 0, all = 0;
    for (int64_t chunk = 0; chunk < stage.num_chunks(); ++chunk) {
      const arch::LayerRange range = stage.layers_of(chunk);
      for (const settings::RecomputeGroup& group :
           settings::recompute_groups(request.recompute, range.end - range.first)) {
        for (int64_t i = group.first; i < group.end; ++i) {
          const LayerWork work = work_of(request, range.first + i);
          again += work.of(group.kind);
          all += work.of(settings::LayerRecompute::kFull);
        }
      }
      if (!goes_through_tower) continue;
      const arch::LayerRange blocks = stage.blocks_of(chunk);
      for (const settings::RecomputeGroup& group :
           settings::recompute_groups(request.recompute, blocks.end - blocks.first)) {
        for (int64_t i = group.first; i < group.end; ++i) {
          const LayerWork work = block_work(request, blocks.first + i);
          again += work.of(group.kind);
          all += work.of(settings::LayerRecompute::kFull);
        }
      }
    }
    if (all > 0) most = std::max(most, again / all);
  }
  return most;
}

std::vector<RecomputeFlags> ways_to_recompute(const Request& request) {
  int64_t layers = 0;  // of the longest virtual stage
  for (const arch::Stage& stage : arch::stages_of(request.model, request.pipeline)) {
    for (int64_t chunk = 0; chunk < stage.num_chunks(); ++chunk)
      layers = std::max(layers, stage.layers_of(chunk).end - stage.layers_of(chunk).first);
  }
  std::vector<RecomputeFlags> all{
      {}, {.norm = true}, {.activation_function = true}, {.granularity = "selective"}};
  for (int64_t first = 1; first < layers; ++first)
    all.push_back({.granularity = "full", .method = "block", .num_layers = first});
  all.push_back({.granularity = "full"});
  return all;
}

/// Everything that may be changed without another result of a step, and the same with adapters.
std::vector<Request> candidates(const Request& request, bool may_adapt) {
  std::vector<Request> all;
  for (const bool adapted : {false, true}) {
    if (adapted && (request.adapters || !may_adapt)) continue;
    for (int64_t parts = 1; parts <= request.micro_batch_size; ++parts) {
      if (request.micro_batch_size % parts != 0) continue;
      const int64_t micro = request.micro_batch_size / parts;
      for (int level = static_cast<int>(request.sharding); level <= 3; ++level) {
        const bool shares = level > static_cast<int>(request.sharding);
        if (shares && request.mesh.model_copies() == 1) break;
        // Weights' gradients that come later need all of them in place.
        if (shares && level > 1 && request.order == arch::PipelineOrder::kZeroBubble) break;
        for (const RecomputeFlags& recompute : with_less_kept(request.recompute)) {
          Request candidate = request;
          if (adapted) {
            candidate.adapters = settings::new_adapters();
            weights::keep_out_of_tower(*candidate.adapters, candidate.model);
          }
          candidate.cut_into(request.num_micro_batches * parts, micro);
          candidate.sharding = static_cast<Sharding>(level);
          candidate.recompute = recompute;
          all.push_back(std::move(candidate));
        }
      }
    }
  }
  return all;
}

}  // namespace

StageMemory fullest_of(const Request& request) {
  const std::vector<StageMemory> all = memory_by_stage(request);
  return *std::max_element(all.begin(), all.end(), [](const StageMemory& a, const StageMemory& b) {
    return a.memory.total() < b.memory.total();
  });
}

std::optional<Fit> nearest_fit(const Request& request, int64_t bytes, bool may_adapt, Fit* least) {
  std::optional<Fit> nearest, smallest;
  size_t fewest = 0;
  for (const Request& candidate : candidates(request, may_adapt)) {
    const std::vector<std::string> flags = changes(request, candidate);
    constexpr size_t kOfAdapters = 8;  // another training: after all that leave it as it is
    const bool is_other = candidate.adapters && !request.adapters;
    const size_t changed = flags.size() + (is_other ? kOfAdapters : 0);
    if (nearest && changed >= fewest) continue;
    const Fit fit{candidate, fmt::format("{}", fmt::join(flags, " ")),
                  fullest_of(candidate).memory.total()};
    if (!smallest || fit.bytes < smallest->bytes) smallest = fit;
    if (fit.bytes > bytes) continue;
    nearest = fit;
    fewest = changed;
  }
  if (least && smallest) *least = *smallest;
  return nearest;
}

RecomputeChoice least_recompute(const Request& request, int64_t bytes) {
  std::vector<RecomputeChoice> choices;
  for (const RecomputeFlags& flags : ways_to_recompute(request)) {
    Request candidate = request;
    candidate.recompute = flags;
    const int64_t needed = fullest_of(candidate).memory.total();
    choices.push_back({.flags = flags,
                       .bytes = needed,
                       .fits = needed <= bytes,
                       .recomputed_share = share_run_again(candidate)});
  }
  std::stable_sort(choices.begin(), choices.end(),
                   [](const RecomputeChoice& a, const RecomputeChoice& b) {
                     return a.recomputed_share < b.recomputed_share;
                   });
  const auto first = std::find_if(choices.begin(), choices.end(),
                                  [](const RecomputeChoice& choice) { return choice.fits; });
  if (first == choices.end()) {
    return *std::min_element(
        choices.begin(), choices.end(),
        [](const RecomputeChoice& a, const RecomputeChoice& b) { return a.bytes < b.bytes; });
  }
  RecomputeChoice choice = *first;
  if (first != choices.begin()) {
    choice.cheaper = std::prev(first)->flags;
    choice.cheaper_bytes = std::prev(first)->bytes;
  }
  return choice;
}

std::string explain(const RecomputeChoice& choice, int64_t bytes) {
  const auto text = [](int64_t size) { return format_bytes(static_cast<uint64_t>(size)); };
  const std::string name = settings::recompute_text(choice.flags);
  if (!choice.fits)
    return tr("{}, which needs the least: {}, of {} that are available", name, text(choice.bytes),
              text(bytes));
  if (!choice.cheaper)
    return tr("{}: {}, of {} that are available", name, text(choice.bytes), text(bytes));
  return tr(
      "{}, {:.1f} % of the layers' operations again: {}, of {} that are available; {} would "
      "need {}",
      name, choice.recomputed_share * 100, text(choice.bytes), text(bytes),
      settings::recompute_text(*choice.cheaper), text(choice.cheaper_bytes));
}

}  // namespace danlu::plan
