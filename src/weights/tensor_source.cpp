#include "weights/tensor_source.h"

#include <algorithm>

namespace danlu::weights {

int64_t TensorInfo::num_elements() const {
  int64_t elements = 1;
  for (const int64_t size : shape) elements *= size;
  return elements;
}

const TensorInfo* TensorSource::find(const std::string& name) const {
  const auto& all = tensors();
  const auto at = std::lower_bound(
      all.begin(), all.end(), name,
      [](const TensorInfo& info, const std::string& key) { return info.name < key; });
  return at != all.end() && at->name == name ? &*at : nullptr;
}

}  // namespace danlu::weights
