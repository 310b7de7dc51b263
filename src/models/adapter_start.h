// models/adapter_start.h: what adapters begin with that take a part from their base: PiSSA, OLoRA.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

#include "weights/lora/peft.h"

namespace danlu::models {

/// A [rank, I] and B [O, rank], f32, of a weight [O, I], f32. PiSSA: scale B A is the weight's
/// rank largest singular values with their vectors, half of each value's root on either side.
/// OLoRA: A and B are the first rows of R and the first columns of Q, so scale B A is the weight's
/// part only where the scale is 1, as in PEFT. `seed`: of the randomised decomposition.
/// REQUIRES: rank is no more than O and I; start.takes_from_base().
struct StartFactors {
  at::Tensor a_RI, b_OR;
};
StartFactors start_factors(const at::Tensor& weight_OI, int64_t rank, double scale,
                           const weights::AdapterStart& start, uint64_t seed);

}  // namespace danlu::models
