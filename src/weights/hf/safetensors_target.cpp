#include "weights/hf/safetensors_target.h"

#include <fmt/format.h>

#include "weights/hf/safetensors_header.h"
#include "weights/hf/shard_plan.h"

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

Target plan_hf_directory(std::vector<TensorInfo> globals, uint64_t max_shard_bytes,
                         const std::string& base_name) {
  Target target;
  const std::vector<ShardPlan> shards = plan_shards(globals, max_shard_bytes);
  for (size_t i = 0; i < shards.size(); ++i) {
    target.layout.files.push_back(shard_name(base_name, i, shards.size()));
    std::vector<TensorInfo> infos;
    for (const size_t index : shards[i].tensors) {
      infos.push_back(globals[index]);
      target.layout.tensors.push_back(whole_tensor(i, globals[index].name, index, globals[index]));
    }
    target.plans.push_back(plan_safetensors_file(infos, {{"format", "pt"}}));
  }
  if (shards.size() > 1) {
    target.texts.emplace_back(base_name + ".safetensors.index.json",
                              shard_index_json(globals, shards, base_name));
  }
  target.layout.globals = std::move(globals);
  target.description =
      fmt::format("Hugging Face, {} file{}", shards.size(), shards.size() == 1 ? "" : "s");
  return target;
}

}  // namespace danlu::weights
