// train/precision.h: the element type of weights and activations that a precision means.
#pragma once
#include <c10/core/ScalarType.h>

#include "train/settings.h"

namespace danlu::train {

inline at::ScalarType scalar_type_of(Precision precision) {
  if (precision == Precision::kF32) return at::kFloat;
  return precision == Precision::kBF16 ? at::kBFloat16 : at::kHalf;
}

}  // namespace danlu::train
