// base/finite.h: infinities and NaNs among stored numbers.
#pragma once
#include <cstddef>

#include "base/dtype.h"

namespace danlu {

/// The largest finite number of a floating type. Errors: InternalError for other types.
double largest_finite(DType dtype);
/// Index of the first infinity or NaN among `count` elements of a floating type; `count` if there
/// is none. At the speed of reading. Errors: as largest_finite.
size_t first_non_finite(const void* elements, DType dtype, size_t count);

}  // namespace danlu
