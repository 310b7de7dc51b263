// weights/hf/sharded_source.h: several weight files behind one index (model.safetensors.index.json
// and kin).
#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "weights/tensor_source.h"

namespace danlu::weights {

/// Opens every shard that `index_file`'s weight_map names, each by its content's format.
/// Errors: ModelError for an index without weight_map, a shard name with a directory in it, a
/// missing shard, a tensor listed but absent. Tensors in a shard that the index does not list are
/// warned about.
std::shared_ptr<const TensorSource> open_index(const std::filesystem::path& index_file);

/// shard file -> tensors in it, in the index's order.
using WeightMap = std::map<std::string, std::vector<std::string>>;
/// The weight_map of an index's content; `origin` begins messages. Errors: ModelError as above.
WeightMap parse_weight_map(const Json& index, const std::string& origin);

/// One weight file, its format told by its first bytes. Errors: ModelError if it is none Danlu
/// reads.
std::shared_ptr<const TensorSource> open_weight_file(const std::filesystem::path& file);

}  // namespace danlu::weights
