// weights/cast.h: numbers of a tensor on their way into another element type.
#pragma once
#include "weights/tensor_source.h"

namespace danlu::weights {

/// cast_elements of elements of `info`, a tensor of `source`. What is not finite in `from` stays
/// so. Errors: ModelError naming file, tensor and number where a finite one is beyond `to_dtype`:
/// it would become infinite without a word.
void cast_weights(const TensorSource& source, const TensorInfo& info, const std::byte* from,
                  std::byte* to, DType to_dtype, size_t count);

/// The error that `dtype` has no finite number for `value`, of this tensor in this file.
[[noreturn]] void refuse_number(const std::string& file, const std::string& tensor, double value,
                                DType dtype);

}  // namespace danlu::weights
