#include "weights/hf/shard_plan.h"

#include <fmt/format.h>

#include <algorithm>

namespace danlu::weights {

std::vector<ShardPlan> plan_shards(const std::vector<TensorInfo>& tensors,
                                   uint64_t max_shard_bytes) {
  std::vector<ShardPlan> shards(1);
  for (size_t index = 0; index < tensors.size(); ++index) {
    const uint64_t bytes = tensors[index].size_bytes();
    if (!shards.back().tensors.empty() && shards.back().data_bytes + bytes > max_shard_bytes)
      shards.emplace_back();
    shards.back().tensors.push_back(index);
    shards.back().data_bytes += bytes;
  }
  return shards;
}

uint64_t shard_bytes_of(const std::string& text) {
  double number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string unit(stop, text.data() + text.size());
  const std::map<std::string, double> units = {{"", 1},          {"B", 1},        {"KB", 1e3},
                                               {"MB", 1e6},      {"GB", 1e9},     {"KiB", 1024},
                                               {"MiB", 1 << 20}, {"GiB", 1 << 30}};
  if (error != std::errc() || !units.count(unit) || !(number * units.at(unit) >= 1) ||
      number > 1e15)
    throw UsageError(tr("[--max-shard-size] must be a size such as 5GB, got \"{}\"", text));
  return static_cast<uint64_t>(number * units.at(unit));
}

std::string shard_name(const std::string& base, size_t index, size_t count) {
  if (count == 1) return base + ".safetensors";
  return fmt::format("{}-{:05}-of-{:05}.safetensors", base, index + 1, count);
}

std::string shard_index_json(const std::vector<TensorInfo>& tensors,
                             const std::vector<ShardPlan>& shards, const std::string& base) {
  uint64_t total_bytes = 0;
  int64_t total_parameters = 0;
  std::vector<std::pair<std::string, std::string>> map;
  for (size_t i = 0; i < shards.size(); ++i) {
    for (const size_t index : shards[i].tensors) {
      map.emplace_back(tensors[index].name, shard_name(base, i, shards.size()));
      total_parameters += tensors[index].num_elements();
    }
    total_bytes += shards[i].data_bytes;
  }
  std::sort(map.begin(), map.end());
  Json weight_map = Json::object();
  for (auto& [tensor, shard] : map) weight_map.push_back({tensor, shard});
  const Json index = {
      {"metadata", {{"total_parameters", total_parameters}, {"total_size", total_bytes}}},
      {"weight_map", weight_map}};
  return index.dump(2) + "\n";
}

}  // namespace danlu::weights
