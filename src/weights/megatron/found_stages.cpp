#include "weights/megatron/found_stages.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/error.h"

namespace danlu::weights::megatron {
namespace {

/// Takes a number off the front; nullopt if there is none of a sane size.
std::optional<int64_t> take_number(std::string_view& text) {
  constexpr int64_t kMost = 1'000'000;
  int64_t number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0 || number > kMost) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(stop - text.data()));
  return number;
}

bool take(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

bool has_gaps(const std::set<int64_t>& indices) {
  return !indices.empty() && *indices.rbegin() + 1 != static_cast<int64_t>(indices.size());
}

}  // namespace

FoundChunks find_chunks(const std::vector<TensorInfo>& tensors, const std::string& layer) {
  FoundChunks chunks;
  for (const TensorInfo& info : tensors) {
    std::string_view name = info.name;
    if (!take(name, "model")) continue;
    const int64_t chunk = take_number(name).value_or(0);
    if (!take(name, ".")) continue;
    chunks.try_emplace(chunk);
    if (!take(name, layer)) continue;
    const auto index = take_number(name);
    if (index && name.starts_with('.')) chunks[chunk].insert(*index);
  }
  return chunks;
}

FoundStages join_stages(const std::vector<std::pair<int64_t, FoundChunks>>& ranks, int64_t pp) {
  std::vector<FoundChunks> joined(static_cast<size_t>(pp));
  for (const auto& [stage, chunks] : ranks) {
    for (const auto& [chunk, indices] : chunks)
      joined.at(static_cast<size_t>(stage))[chunk].insert(indices.begin(), indices.end());
  }
  size_t num_chunks = 1;
  for (const FoundChunks& chunks : joined) {
    if (!chunks.empty())
      num_chunks = std::max(num_chunks, static_cast<size_t>(chunks.rbegin()->first) + 1);
  }
  constexpr size_t kMostChunks = 4096;
  if (num_chunks > kMostChunks) return {};
  FoundStages stages;
  for (FoundChunks& chunks : joined) {
    stages.emplace_back();
    for (size_t chunk = 0; chunk < num_chunks; ++chunk) {
      const std::set<int64_t>& indices = chunks[static_cast<int64_t>(chunk)];
      if (has_gaps(indices)) return {};
      stages.back().push_back(static_cast<int64_t>(indices.size()));
    }
  }
  return stages;
}

int64_t count_layers(const FoundStages& stages) {
  int64_t layers = 0;
  for (const auto& chunks : stages) {
    for (const int64_t count : chunks) layers += count;
  }
  return layers;
}

Split with_stages(Split split, const FoundStages& stages, const std::string& where) {
  const bool is_said = !split.layer_list.empty() || !split.noop_layers.empty() ||
                       split.layers_per_virtual_stage != 0;
  if (is_said || split.pp == 1 || stages.empty()) return split;
  std::vector<int64_t> counts;
  for (const auto& chunks : stages) counts.insert(counts.end(), chunks.begin(), chunks.end());
  const bool are_equal = std::all_of(counts.begin(), counts.end(),
                                     [&](int64_t count) { return count == counts.front(); });
  if (stages.front().size() == 1) {
    if (!are_equal) split.layer_list = counts;
    return split;
  }
  if (!are_equal) {
    throw ModelError(tr("{}: its virtual stages hold {} layers; they must be equal", where,
                        fmt::join(counts, ", ")),
                     tr("no-op layers are known from args.noop_layers alone, which are not in it"));
  }
  split.layers_per_virtual_stage = counts.front();
  return split;
}

namespace {

/// [stage][chunk] -> [chunk][stage].
std::vector<std::vector<int64_t>> lists_of(const FoundStages& stages) {
  std::vector<std::vector<int64_t>> lists(stages.front().size());
  for (const auto& chunks : stages) {
    for (size_t chunk = 0; chunk < chunks.size(); ++chunk) lists[chunk].push_back(chunks[chunk]);
  }
  return lists;
}

}  // namespace

Split with_lists(Split split, const FoundStages& layers, const FoundStages& blocks,
                 const std::string& where) {
  if (layers.empty() || blocks.empty()) {
    throw ModelError(tr("{}: the numbers of its layers or vision blocks leave gaps", where),
                     tr("a copy may be incomplete, or two checkpoints are mixed in one folder"));
  }
  split.chunk_list = lists_of(layers);
  split.block_list = lists_of(blocks);
  return split;
}

}  // namespace danlu::weights::megatron
