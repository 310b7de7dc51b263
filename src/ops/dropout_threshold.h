// ops/dropout_threshold.h: what of random bits dropout keeps. Internal to ops.
#pragma once
#include <cstdint>

namespace danlu::ops {

/// An element stays if its 32 random bits are not below this.
inline uint64_t dropout_threshold(double p) { return static_cast<uint64_t>(p * 4294967296.0); }

}  // namespace danlu::ops
