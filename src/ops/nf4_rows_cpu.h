// ops/nf4_rows_cpu.h: codes of NF4 as numbers, for one thread. The instruction set is chosen when
// the program runs. Internal to ops.
#pragma once
#include <cstdint>

#include "ops/row_kernels_cpu.h"

namespace danlu::ops::cpu {

/// The types that numbers are rounded to, one after the other: of what was quantised, and of what
/// they are multiplied with.
struct Nf4Rounding {
  Element first, then;
};
/// to[i] = kNf4Numbers[code first + i] * factor, rounded and held as f32.
void decode_nf4(const Nf4Rounding& rounding, const uint8_t* codes, int64_t first, int64_t count,
                float factor, float* to);

}  // namespace danlu::ops::cpu
