// ops/rotary.h: rotary position embedding on half-split heads (pairs (j, j + D/2)).
#pragma once
#include <ATen/core/Tensor.h>

namespace danlu::ops {

/// Cosine and sine of every token's angles, shared by all layers. Undefined tensors: no rotation.
struct RotaryTable {
  at::Tensor cos_NE, sin_NE;  ///< f32 [N, E], E = D/2
};

/// angle = position * inv_freq; both tables are multiplied by `attention_factor` (yarn).
/// Shapes  positions_N int64 [N]; inv_freq f32 [E], or [N, E] where frequencies differ by token.
/// Errors: other shapes, positions of another type.
RotaryTable rotary_table(const at::Tensor& positions_N, const at::Tensor& inv_freq,
                         double attention_factor);

/// y[j] = x[j] cos - x[j+E] sin;  y[j+E] = x[j+E] cos + x[j] sin.
/// Shapes  x_NQD [N, heads, D]; result as x. Dtypes: computed in f32 (f64 for f64), rounded once.
/// Grad    through x. Errors  ModelError if D is odd or the table has other sizes.
at::Tensor rotary(const at::Tensor& x_NQD, const RotaryTable& table);

namespace oracle {
at::Tensor rotary(const at::Tensor& x_NQD, const RotaryTable& table);
}
}  // namespace danlu::ops
