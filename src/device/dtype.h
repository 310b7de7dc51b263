// device/dtype.h: element types on disk (danlu::DType) and of tensors (at::ScalarType).
#pragma once
#include <c10/core/ScalarType.h>

#include "base/dtype.h"

namespace danlu::device {

/// Errors: ModelError for types libtorch has no tensors of (u16, u32, u64).
at::ScalarType scalar_type_of(DType dtype);
/// Errors: InternalError for types no file format here has (complex, quantised).
DType dtype_of(at::ScalarType type);
/// The type sums, norms and soft-maxima of `type` are computed in: f64 for f64, else f32.
inline at::ScalarType wide_type(at::ScalarType type) {
  return type == at::kDouble ? at::kDouble : at::kFloat;
}

}  // namespace danlu::device
