// weights/torch/pickle_writer.h: a value as the pickle that Python's pickle module would write
// (protocol 2).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "weights/tensor_source.h"
#include "weights/torch/py_value.h"

namespace danlu::weights::torch_file {

struct WrittenPickle {
  std::string program;
  std::vector<bool> used;  ///< whether the value mentions tensor i
};

/// kTensor(i) becomes a tensor over the storage of key "i". Containers go out in batches of 1000,
/// as Python writes them; only names and the texts of storages are shared through the memo.
/// Errors: as plan_torch_file.
WrittenPickle write_pickle(const PyValue& root, const std::vector<TensorInfo>& tensors);

}  // namespace danlu::weights::torch_file
