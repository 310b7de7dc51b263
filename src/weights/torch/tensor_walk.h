// weights/torch/tensor_walk.h: goes through the object graph of a pickle: names its tensors, and
// makes values of the rest.
#pragma once
#include <string>
#include <vector>

#include "weights/torch/pickle_value.h"
#include "weights/torch/py_value.h"
#include "weights/torch/storage_table.h"
#include "weights/torch/torch_contents.h"

namespace danlu::weights::torch_file {

/// Every tensor under the root, keys joined by '.'. Objects of unknown classes are passed over
/// below keys that hold settings or random states (args, config, rng_state, …), and are errors
/// elsewhere. `max_tensor_bytes` bounds tensors whose strides repeat elements (expand()).
///
/// `document`, where given, becomes the root as a value; its kTensor indices are positions in the
/// result. Objects that are else passed over are then looked into.
/// Errors: ModelError "<origin>: …" naming the tensor or the Python name.
std::vector<StridedTensor> collect_tensors(const Pickle& pickle, const std::string& origin,
                                           const StorageBytes& storage_bytes,
                                           uint64_t max_tensor_bytes, PyValue* document = nullptr);

}  // namespace danlu::weights::torch_file
