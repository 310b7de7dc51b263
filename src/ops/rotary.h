// ops/rotary.h: rotary position embedding: of a head's first dimensions, pairs of them turn.
#pragma once
#include <ATen/core/Tensor.h>

namespace danlu::ops {

/// Cosine and sine of every token's angles, shared by all layers. Undefined tensors: no rotation.
struct RotaryTable {
  at::Tensor cos_NE, sin_NE;  ///< f32 [N, E]; the first 2E dimensions of a head turn
  /// Dimensions 2j and 2j+1 are a pair; false: j and j+E.
  bool is_pairwise = false;
};

/// angle = position * inv_freq; both tables are multiplied by `attention_factor` (yarn).
/// Shapes  positions_N int64 [N]; inv_freq f32 [E], or [N, E] where frequencies differ by token.
/// Errors: other shapes, positions of another type.
RotaryTable rotary_table(const at::Tensor& positions_N, const at::Tensor& inv_freq,
                         double attention_factor);

/// Each pair (a, b) becomes (a cos - b sin, b cos + a sin). Dimensions after the first 2E stay.
/// Shapes  x_NQD [N, heads, D], D >= 2E; result as x. Dtypes: computed in f32 (f64 for f64),
///         rounded once.
/// Grad    through x. Errors  ModelError if the table has other sizes.
at::Tensor rotary(const at::Tensor& x_NQD, const RotaryTable& table);

namespace oracle {
at::Tensor rotary(const at::Tensor& x_NQD, const RotaryTable& table);
}
}  // namespace danlu::ops
