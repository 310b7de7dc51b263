// weights/torch/storage_table.h: where the raw bytes of each storage key lie in the file.
#pragma once
#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <string>

#include "base/dtype.h"
#include "weights/torch/pickle_value.h"

namespace danlu::weights::torch_file {

/// What a persistent id in the pickle says: ("storage", class, key, location, numel[, view]).
struct StorageRef {
  std::string key;
  DType dtype = DType::kF32;
  int64_t num_elements = 0;
  int64_t view_offset = 0;  ///< legacy storage views: elements into the storage `key`
};

/// Errors: ModelError "<origin>: …" for a reference of another form or an element type Danlu does
/// not read.
StorageRef parse_storage_ref(const Pickle& pickle, ValueId persistent, const std::string& origin);

/// The bytes of a storage; at least num_elements (from the view's offset on). Errors: ModelError.
using StorageBytes = std::function<std::span<const std::byte>(const StorageRef&)>;

}  // namespace danlu::weights::torch_file
