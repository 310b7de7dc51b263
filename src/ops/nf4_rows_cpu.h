// ops/nf4_rows_cpu.h: codes of NF4 as numbers, for one thread. The instruction set is chosen when
// the program runs. Internal to ops.
#pragma once
#include <cstdint>

#include "ops/row_kernels_cpu.h"

namespace danlu::ops::cpu {

/// to[i] = round(kNf4Numbers[code first + i] * factor), rounded to `type` and held as f32.
void decode_nf4(Element type, const uint8_t* codes, int64_t first, int64_t count, float factor,
                float* to);

}  // namespace danlu::ops::cpu
