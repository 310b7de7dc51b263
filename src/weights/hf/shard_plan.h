// weights/hf/shard_plan.h: which tensors go into which safetensors file of a Hugging Face
// directory.
#pragma once
#include <string>
#include <vector>

#include "weights/tensor_source.h"

namespace danlu::weights {

struct ShardPlan {
  std::vector<size_t> tensors;  ///< indices, in the order given by the caller
  uint64_t data_bytes = 0;
};

/// "5GB", "500MB", "1.5GiB" or a number of bytes. Errors: UsageError.
uint64_t shard_bytes_of(const std::string& text);

/// Cuts in the caller's order, as Hugging Face does: a tensor larger than the limit gets its own
/// shard. At least one shard.
std::vector<ShardPlan> plan_shards(const std::vector<TensorInfo>& tensors,
                                   uint64_t max_shard_bytes);

/// "model.safetensors", or "model-00001-of-00003.safetensors".
std::string shard_name(const std::string& base, size_t index, size_t count);

/// The text of <base>.safetensors.index.json.
std::string shard_index_json(const std::vector<TensorInfo>& tensors,
                             const std::vector<ShardPlan>& shards, const std::string& base);

}  // namespace danlu::weights
