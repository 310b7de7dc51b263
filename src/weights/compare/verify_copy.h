// weights/compare/verify_copy.h: proof that a converted checkpoint holds what its source held.
#pragma once
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "weights/compare/tensor_digest.h"
#include "weights/tensor_bands.h"
#include "weights/tensor_source.h"

namespace danlu::weights {

/// The dtype that a floating tensor of the source is to have in the result; unset: its own, as that
/// of all others.
using DTypeRule = std::function<DType(const TensorInfo& source)>;

struct CopyMismatch {
  enum class Kind { kMissing, kUnexpected, kShape, kDType, kValue };
  Kind kind = Kind::kValue;
  std::string tensor;
  std::filesystem::path source_file = {}, result_file = {};  ///< empty where there is no tensor
  std::string source, result;  ///< shape, dtype or value on either side, as text
  int64_t row = 0, col = 0;    ///< kValue: in the tensor's matrix (Rect)

  /// "out/model.safetensors: w is 0.5 at row 3, column 17; m/model.safetensors has 0.25".
  std::string text() const;
};

struct CopyCheck {
  std::vector<TensorDigest> digests;  ///< of the result's tensors that were compared, by name
  std::optional<CopyMismatch> first;  ///< by name; unset: the copy is exact
};

/// Every tensor of `source` is in `result`, nothing else is, and the bits are those of the source
/// cast to the result's dtype (base/dtype.h: one rounding to nearest even). Streams: memory does
/// not grow with the tensors. Progress counts the bytes of `result`. Errors: what reading throws.
CopyCheck verify_copy(const TensorSource& source, const TensorSource& result,
                      const DTypeRule& dtype_of = {}, const BytesProgress& progress = {},
                      size_t num_threads = 0);

}  // namespace danlu::weights
