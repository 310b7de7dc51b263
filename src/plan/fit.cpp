#include "plan/fit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "base/error.h"

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
    change("recompute", to.recompute.granularity);
    if (from.recompute.method == "block") change("recompute-method", "uniform");
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
  if (from.granularity != "full" || from.method == "block") all.push_back(full);
  return all;
}

/// All that may be changed without another result of a step, and those with adapters.
std::vector<Request> candidates(const Request& request) {
  std::vector<Request> all;
  for (const bool adapted : {false, true}) {
    if (adapted && request.adapters) continue;
    for (int64_t parts = 1; parts <= request.micro_batch_size; ++parts) {
      if (request.micro_batch_size % parts != 0) continue;
      const int64_t micro = request.micro_batch_size / parts;
      for (int level = static_cast<int>(request.sharding); level <= 3; ++level) {
        const bool shares = level > static_cast<int>(request.sharding);
        if (shares && request.mesh.copies() == 1) break;
        // Weights' gradients that come later need all of them in place.
        if (shares && level > 1 && request.order == arch::PipelineOrder::kZeroBubble) break;
        for (const RecomputeFlags& recompute : with_less_kept(request.recompute)) {
          Request candidate = request;
          if (adapted) candidate.adapters = settings::new_adapters();
          candidate.num_micro_batches *= parts;
          candidate.micro_batch_size = micro;
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

std::optional<Fit> nearest_fit(const Request& request, int64_t bytes, Fit* least) {
  std::optional<Fit> nearest, smallest;
  size_t fewest = 0;
  for (const Request& candidate : candidates(request)) {
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

}  // namespace danlu::plan
