#include "weights/cast.h"

#include <fmt/format.h>

#include <cmath>

#include "base/error.h"
#include "base/finite.h"

namespace danlu::weights {

void refuse_number(const std::string& file, const std::string& tensor, double value, DType dtype) {
  const std::string name = dtype == DType::kF16    ? "fp16"
                           : dtype == DType::kBF16 ? "bf16"
                           : dtype == DType::kF32  ? "fp32"
                                                   : "fp64";
  throw ModelError(tr("{}: {} holds {:g}, which {} cannot (its largest is {:g})", file, tensor,
                      value, name, largest_finite(dtype)),
                   dtype == DType::kF16
                       ? tr("store bf16 or fp32 instead")
                       : tr("the weights are damaged or come from a diverged run"));
}

void cast_weights(const TensorSource& source, const TensorInfo& info, const std::byte* from,
                  std::byte* to, DType to_dtype, size_t count) {
  cast_elements(from, info.dtype, to, to_dtype, count);
  if (info.dtype == to_dtype || largest_finite(to_dtype) >= largest_finite(info.dtype)) return;
  const size_t item = dtype_size_bytes(info.dtype), to_item = dtype_size_bytes(to_dtype);
  for (size_t at = 0;; ++at) {
    at += first_non_finite(to + at * to_item, to_dtype, count - at);
    if (at == count) return;
    double value = 0;
    cast_elements(from + at * item, info.dtype, &value, DType::kF64, 1);
    if (std::isfinite(value))
      refuse_number(source.file_of(info.name).string(), info.name, value, to_dtype);
  }
}

}  // namespace danlu::weights
