// weights/torch/tensor_rebuild.h: recognises the recorded calls that make tensors.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weights/torch/pickle_value.h"
#include "weights/torch/storage_table.h"
#include "weights/torch/torch_contents.h"

namespace danlu::weights::torch_file {

class TensorRebuilder {
 public:
  /// The call that makes a tensor, once parameters and subclasses are unwrapped.
  struct Rebuild {
    std::string_view function;
    const std::vector<ValueId>* arguments = nullptr;
  };

  /// `max_tensor_bytes` bounds tensors whose strides repeat elements (expand()). The arguments must
  /// outlive this.
  TensorRebuilder(const Pickle& pickle, const std::string& origin,
                  const StorageBytes& storage_bytes, uint64_t max_tensor_bytes)
      : pickle_(pickle),
        origin_(origin),
        storage_bytes_(storage_bytes),
        max_tensor_bytes_(max_tensor_bytes) {}

  /// nullopt: the call makes no tensor. REQUIRES: a kCall.
  /// Errors: ModelError "<origin>: <name>: …" for one that begins like a tensor and is none.
  std::optional<Rebuild> unwrap(ValueId id, const std::string& name) const;
  /// Checks that every element lies inside the storage. Errors: ModelError as above.
  StridedTensor locate(const Rebuild& rebuild, const std::string& name) const;

 private:
  [[noreturn]] void fail(const std::string& name, const std::string& what) const;
  std::vector<int64_t> integers(ValueId id, const std::string& name, const char* what) const;
  int64_t integer(ValueId id, const std::string& name, const char* what) const;
  void check_inside(const StridedTensor& tensor, int64_t storage_elements) const;

  const Pickle& pickle_;
  const std::string& origin_;
  const StorageBytes& storage_bytes_;
  uint64_t max_tensor_bytes_;
};

}  // namespace danlu::weights::torch_file
