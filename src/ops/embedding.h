// ops/embedding.h: rows of a table by token id.
#pragma once
#include <ATen/core/Tensor.h>

namespace danlu::ops {

/// Shapes  ids_N int64 [N]; weight_VH [V, H]; result [N, H]. Grad through the weight (dense; rows
///         of repeated ids are summed in f32 and rounded once).
/// Errors  ModelError naming the id and V if an id is outside [0, V) (checked where the ids are on
///         the CPU; elsewhere the device's own assertion).
at::Tensor embedding(const at::Tensor& ids_N, const at::Tensor& weight_VH);

}  // namespace danlu::ops
