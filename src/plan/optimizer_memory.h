// plan/optimizer_memory.h: memory of optimizers that are not AdamW of every element.
#pragma once
#include <cstdint>

#include "arch/model_config.h"
#include "plan/layer_memory.h"
#include "plan/memory.h"
#include "plan/request.h"

namespace danlu::plan {

/// Counts elements of `spec` that are updated by whole matrices, `each` of them, in by_wholes and
/// fewer, and what their update takes. trained: elements of this rank.
void count_wholes(const Request& request, const arch::ParamSpec& spec, const Use& use, int64_t each,
                  int64_t trained, Elements& elements);
/// What an update takes beside gradients: directions of the unit with the most, and one matrix.
int64_t update_bytes(const Request& request, const Elements& elements);
/// BAdam's moments are one layer's. So are gradients where they are not shared, and those of the
/// first layer, to which every pass goes back.
void leave_one_layer(const Request& request, const Elements& elements, Memory& memory);

}  // namespace danlu::plan
