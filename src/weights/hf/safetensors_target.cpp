#include "weights/hf/safetensors_target.h"

#include <fmt/format.h>

#include <map>

#include "base/error.h"
#include "base/file.h"
#include "weights/hf/safetensors_header.h"
#include "weights/hf/shard_plan.h"
#include "weights/hf/stored_form.h"
#include "weights/hf/tower_names.h"

namespace danlu::weights {

PlannedFile plan_safetensors_file(const std::vector<TensorInfo>& tensors, const Json& metadata) {
  const std::vector<size_t> order = safetensors_file_order(tensors);
  std::vector<TensorInfo> in_order;
  for (const size_t at : order) in_order.push_back(tensors[at]);
  PlannedFile plan;
  plan.known.push_back({0, build_safetensors_header(in_order, metadata)});
  plan.size_bytes = plan.known.front().bytes.size();
  plan.tensor_offsets.resize(tensors.size());
  for (const size_t at : order) {
    plan.tensor_offsets[at] = plan.size_bytes;
    plan.size_bytes += tensors[at].size_bytes();
  }
  return plan;
}

namespace {

Target plan_shards_of(std::vector<TensorInfo> globals, std::vector<StoredTensor> stored,
                      uint64_t max_shard_bytes, const std::string& base_name) {
  Target target;
  std::vector<TensorInfo> all;
  for (const StoredTensor& tensor : stored) all.push_back(tensor.info);
  const std::vector<ShardPlan> shards = plan_shards(all, max_shard_bytes);
  for (size_t i = 0; i < shards.size(); ++i) {
    target.layout.files.push_back(shard_name(base_name, i, shards.size()));
    std::vector<TensorInfo> infos;
    for (const size_t index : shards[i].tensors) {
      infos.push_back(all[index]);
      stored[index].file = i;
      target.layout.tensors.push_back(std::move(stored[index]));
    }
    target.plans.push_back(plan_safetensors_file(infos, {{"format", "pt"}}));
  }
  if (shards.size() > 1) {
    target.texts.emplace_back(base_name + ".safetensors.index.json",
                              shard_index_json(all, shards, base_name));
  }
  target.layout.globals = std::move(globals);
  target.description =
      fmt::format("Hugging Face, {} file{}", shards.size(), shards.size() == 1 ? "" : "s");
  return target;
}

}  // namespace

Target plan_hf_directory(std::vector<TensorInfo> globals, uint64_t max_shard_bytes,
                         const std::string& base_name) {
  std::vector<StoredTensor> stored;
  for (size_t i = 0; i < globals.size(); ++i)
    stored.push_back(whole_tensor(0, globals[i].name, i, globals[i]));
  return plan_shards_of(std::move(globals), std::move(stored), max_shard_bytes, base_name);
}

Target plan_hf_model(const arch::ModelConfig& config, std::vector<TensorInfo> globals,
                     uint64_t max_shard_bytes) {
  std::vector<StoredTensor> stored = stored_in_files(config, globals);
  return plan_shards_of(std::move(globals), std::move(stored), max_shard_bytes, "model");
}

namespace {

/// File of each tensor, under the hub's names.
std::map<std::string, std::string> file_of_tensors(const std::filesystem::path& index) {
  Json json;
  try {
    json = read_json_file(index);
  } catch (const DataError& error) {
    throw ModelError(error.what());
  }
  const Json map = json_get<Json>(json, "weight_map").value_or(Json());
  if (!map.is_object()) throw ModelError(tr("{}: weight_map must be an object", index.string()));
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : map.items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : std::string();
    const bool is_plain = name.ends_with(".safetensors") && name.front() != '.' &&
                          name.find('/') == std::string::npos;
    if (!is_plain) {
      throw ModelError(tr("{}: {} lies in {}, which is no safetensors file beside it",
                          index.string(), tensor,
                          file.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 60)));
    }
    files.emplace(hub_name(tensor), name);
  }
  return files;
}

}  // namespace

Target plan_hf_model_like(const arch::ModelConfig& config, std::vector<TensorInfo> globals,
                          const std::filesystem::path& index) {
  const std::map<std::string, std::string> file_of = file_of_tensors(index);
  std::map<std::string, std::vector<StoredTensor>> by_file;
  std::map<std::string, std::string> weight_map;
  uint64_t total_bytes = 0;
  for (StoredTensor& stored : stored_in_files(config, globals)) {
    const auto at = file_of.find(stored.info.name);
    if (at == file_of.end()) {
      throw ModelError(tr("{}: does not say where {} goes", index.string(), stored.info.name),
                       tr("is it the index of this model?"));
    }
    weight_map.emplace(stored.info.name, at->second);
    total_bytes += stored.info.size_bytes();
    by_file[at->second].push_back(std::move(stored));
  }
  Target target;
  for (auto& [file, tensors] : by_file) {
    std::vector<TensorInfo> infos;
    for (StoredTensor& stored : tensors) {
      infos.push_back(stored.info);
      stored.file = target.layout.files.size();
      target.layout.tensors.push_back(std::move(stored));
    }
    target.layout.files.push_back(file);
    target.plans.push_back(plan_safetensors_file(infos, {{"format", "pt"}}));
  }
  const Json text = {{"metadata", {{"total_size", total_bytes}}}, {"weight_map", weight_map}};
  target.texts.emplace_back("model.safetensors.index.json", text.dump(2) + "\n");
  target.description =
      fmt::format("Hugging Face, {} file{}", by_file.size(), by_file.size() == 1 ? "" : "s");
  target.layout.globals = std::move(globals);
  return target;
}

}  // namespace danlu::weights
