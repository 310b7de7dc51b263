#include "arch/placement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "base/divisors.h"
#include "base/error.h"

namespace danlu::arch {
namespace {

constexpr int64_t kMostNamed = 128;  // more is nobody's number of stages or ranks

/// The model's layer in each global slot.
std::vector<int64_t> layers_of_slots(const PipelineLayers& split, int64_t num_layers) {
  const std::set<int64_t> noops(split.noop_layers.begin(), split.noop_layers.end());
  if (noops.size() != split.noop_layers.size())
    throw UsageError(tr("[--noop-layers] a slot is named twice"));
  const int64_t slots = num_layers + static_cast<int64_t>(noops.size());
  if (!noops.empty() && (*noops.begin() < 0 || *noops.rbegin() >= slots)) {
    throw UsageError(
        tr("[--noop-layers] {} no-op slots beside {} layers make slots 0 to {}, got slot {}",
           noops.size(), num_layers, slots - 1,
           *noops.begin() < 0 ? *noops.begin() : *noops.rbegin()));
  }
  std::vector<int64_t> layers;
  int64_t next = 0;
  for (int64_t slot = 0; slot < slots; ++slot)
    layers.push_back(noops.count(slot) ? kNoopLayer : next++);
  return layers;
}

/// Sizes as even as they get, the longer stages first.
std::vector<int64_t> even_list(int64_t stages, int64_t slots) {
  std::vector<int64_t> list(static_cast<size_t>(stages), slots / stages);
  for (int64_t i = 0; i < slots % stages; ++i) ++list[static_cast<size_t>(i)];
  return list;
}

std::vector<int64_t> stage_sizes(const PipelineLayers& split, int64_t slots) {
  if (split.layer_list.empty()) {
    if (slots % split.stages != 0 && split.stages < slots && !split.is_virtual()) {
      throw UsageError(
          tr("[split] {} size {} does not divide {} {}", "pipeline", split.stages, slots, "layers"),
          tr("sizes that do: {}; or name the layers of each stage: --num-layer-list {}",
             fmt::join(divisors(slots, kMostNamed), ", "),
             fmt::join(even_list(split.stages, slots), ",")));
    }
    require_divides("pipeline", split.stages, "layers", slots);
    return std::vector<int64_t>(static_cast<size_t>(split.stages), slots / split.stages);
  }
  if (split.is_virtual())
    throw UsageError(tr("[--num-layer-list] cannot be combined with virtual pipeline stages"));
  // Sums of numbers in this range cannot overflow.
  const bool possible = std::all_of(split.layer_list.begin(), split.layer_list.end(),
                                    [&](int64_t n) { return n >= 0 && n <= slots; });
  if (static_cast<int64_t>(split.layer_list.size()) != split.stages || !possible ||
      std::accumulate(split.layer_list.begin(), split.layer_list.end(), int64_t{0}) != slots) {
    throw UsageError(
        tr("[--num-layer-list] {} does not cut {} layers into {} pipeline stages",
           fmt::join(split.layer_list, ","), slots, split.stages),
        tr("one number per stage, which sum to the model's layers (no-op slots included): {}",
           fmt::join(even_list(split.stages, slots), ",")));
  }
  return split.layer_list;
}

}  // namespace

void require_divides(const char* what, int64_t size, const char* of, int64_t number) {
  if (number % size == 0) return;
  throw UsageError(tr("[split] {} size {} does not divide {} {}", translated(what), size, number,
                      translated(of)),
                   tr("sizes that do: {}", fmt::join(divisors(number, kMostNamed), ", ")));
}

namespace {

/// `what` names the list in messages.
void require_list(const char* what, const std::vector<std::vector<int64_t>>& list,
                  const PipelineLayers& split, int64_t count) {
  int64_t sum = 0;
  bool fits = true;
  for (const std::vector<int64_t>& chunk : list) {
    fits = fits && static_cast<int64_t>(chunk.size()) == split.stages;
    for (const int64_t n : chunk) {
      fits = fits && n >= 0 && n <= count;
      sum += fits ? n : 0;
    }
  }
  if (fits && sum == count) return;
  std::vector<std::string> chunks;
  for (const std::vector<int64_t>& chunk : list)
    chunks.push_back(fmt::format("[{}]", fmt::join(chunk, ",")));
  throw UsageError(tr("[{}] {} does not cut {} layers into {} pipeline stages", what,
                      fmt::join(chunks, ","), count, split.stages),
                   tr("one number per stage, which sum to the layers; with virtual stages one such "
                      "list for each chunk"));
}

Placement place_list(const PipelineLayers& split, int64_t num_layers) {
  require_list("pipeline_num_layers", split.chunk_list, split, num_layers);
  if (!split.layer_list.empty() || split.layers_per_virtual_stage > 0 || split.virtual_stages > 0 ||
      !split.noop_layers.empty()) {
    throw UsageError(
        tr("[pipeline_num_layers] says which layers each stage has, so no other flag "
           "may say it too"));
  }
  Placement placement(static_cast<size_t>(split.stages));
  int64_t next = 0;
  for (const std::vector<int64_t>& chunk : split.chunk_list) {
    for (size_t stage = 0; stage < chunk.size(); ++stage) {
      std::vector<int64_t>& layers = placement[stage].emplace_back();
      for (int64_t i = 0; i < chunk[stage]; ++i) layers.push_back(next++);
    }
  }
  return placement;
}

}  // namespace

std::vector<std::vector<int64_t>> place_blocks(const PipelineLayers& split,
                                               const Placement& placement, int64_t num_blocks) {
  const size_t stages = placement.size(), chunks = placement.front().size();
  std::vector<std::vector<int64_t>> blocks(chunks, std::vector<int64_t>(stages, 0));
  if (num_blocks < 1 && split.block_list.empty()) return blocks;
  if (split.block_list.empty()) {
    blocks.front().front() = num_blocks;
    return blocks;
  }
  require_list("vit_pipeline_num_layers", split.block_list, split,
               std::max<int64_t>(num_blocks, 0));
  if (split.block_list.size() != chunks) {
    throw UsageError(tr("[vit_pipeline_num_layers] has {} lists where the decoder's has {}",
                        split.block_list.size(), chunks));
  }
  bool has_layers = false;
  for (size_t chunk = 0; chunk < chunks; ++chunk) {
    for (size_t stage = 0; stage < stages; ++stage) {
      if (split.block_list[chunk][stage] > 0 && has_layers) {
        throw UsageError(
            tr("[vit_pipeline_num_layers] blocks of the vision tower must come before "
               "all layers of the decoder; chunk {} of stage {} is behind one",
               chunk, stage));
      }
      has_layers = has_layers || !placement[stage][chunk].empty();
    }
  }
  return split.block_list;
}

PipelineLayers split_beside(const PipelineLayers& split, int64_t own_layers, int64_t num_layers) {
  if (own_layers == num_layers) return split;
  PipelineLayers equal{.stages = split.stages};
  const int64_t more = num_layers % split.stages;
  for (int64_t stage = 0; more > 0 && stage < split.stages; ++stage)
    equal.layer_list.push_back(num_layers / split.stages + (stage < more ? 1 : 0));
  return equal;
}

Placement place_layers(const PipelineLayers& split, int64_t num_layers) {
  if (!split.chunk_list.empty()) return place_list(split, num_layers);
  const std::vector<int64_t> layers = layers_of_slots(split, num_layers);
  const auto slots = static_cast<int64_t>(layers.size());
  const auto run = [&](int64_t begin, int64_t count) {
    return std::vector<int64_t>(layers.begin() + begin, layers.begin() + begin + count);
  };
  if (split.layers_per_virtual_stage < 0) {
    throw UsageError(tr("[split] layers of a virtual pipeline stage must be at least 1, got {}",
                        split.layers_per_virtual_stage));
  }
  Placement placement(static_cast<size_t>(split.stages));
  if (!split.is_virtual()) {
    const std::vector<int64_t> sizes = stage_sizes(split, slots);
    int64_t begin = 0;
    for (size_t stage = 0; stage < sizes.size(); ++stage) {
      placement[stage].push_back(run(begin, sizes[stage]));
      begin += sizes[stage];
    }
    return placement;
  }
  (void)stage_sizes(split, slots);  // the equal cut must be possible, and a list is refused
  const int64_t per_stage = slots / split.stages;
  if (split.virtual_stages > 0)
    require_divides("virtual pipeline", split.virtual_stages, "layers of a pipeline stage",
                    per_stage);
  const int64_t count =
      split.virtual_stages > 0 ? per_stage / split.virtual_stages : split.layers_per_virtual_stage;
  require_divides("virtual pipeline stage", count, "layers of a pipeline stage", per_stage);
  const int64_t chunks = per_stage / count;
  for (int64_t stage = 0; stage < split.stages; ++stage) {
    for (int64_t chunk = 0; chunk < chunks; ++chunk)
      placement[static_cast<size_t>(stage)].push_back(
          run(chunk * (slots / chunks) + stage * count, count));
  }
  return placement;
}

}  // namespace danlu::arch
