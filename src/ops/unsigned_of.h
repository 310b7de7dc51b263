// ops/unsigned_of.h: sizes of tensors, which are int64_t, as memory counts. Internal to ops.
#pragma once
#include <cstddef>
#include <cstdint>

namespace danlu::ops {

inline size_t unsigned_of(int64_t value) { return static_cast<size_t>(value); }

}  // namespace danlu::ops
