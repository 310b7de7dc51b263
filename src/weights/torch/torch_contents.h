// weights/torch/torch_contents.h: the tensors of a file that torch.save wrote, located but not
// copied.
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "weights/tensor_source.h"
#include "weights/torch/py_value.h"

namespace danlu::weights::torch_file {

/// A tensor as a view of a storage: element i of dimension d lies strides[d] elements further.
struct StridedTensor {
  TensorInfo info;
  std::span<const std::byte> storage;  ///< into the file
  int64_t offset = 0;                  ///< elements
  std::vector<int64_t> strides;        ///< elements, never negative
  bool is_contiguous() const;
};

/// Zip container (torch ≥ 1.6) or the legacy stream of pickles, told by the first bytes. Every
/// tensor is checked to lie inside its storage and every storage inside the file. Names: keys
/// joined by '.'; a file that is one tensor calls it "tensor". Errors: ModelError "<origin>: …";
/// see docs/formats/torch_pickle.md.
/// `document`, where given, becomes the tree of Python objects (see torch_document.h), its kTensor
/// indices positions in the result.
std::vector<StridedTensor> read_torch_contents(std::span<const std::byte> file,
                                               const std::string& origin,
                                               PyValue* document = nullptr);

/// How deep values may be nested.
inline constexpr int kMaxDepth = 64;

}  // namespace danlu::weights::torch_file
