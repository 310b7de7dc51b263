// ops/grouped_linear.h: products of rows that stand in groups, each group with a weight of its own,
// as the tokens of a mixture-of-experts layer.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "ops/main_grad.h"

namespace danlu::ops {

/// Group g is the next counts[g] rows of x after those of the groups before it, and its rows go
/// through weights[g] as in ops::linear. A group without rows costs nothing; its weight's gradient
/// is 0.
/// Shapes  x_RI [R, I], R the sum of `counts`; each weight [O, I]; result [R, O].
/// Dtypes  as ops::linear.
/// Grad    through x and the weights; a weight's goes to main[g] where that has a place for it.
///         `main` may be empty.
/// Errors  ModelError for shapes or dtypes that do not fit, and for counts that do not add up.
at::Tensor grouped_linear(const at::Tensor& x_RI, const std::vector<at::Tensor>& weights_OI,
                          const std::vector<int64_t>& counts,
                          const std::vector<MainGradPtr>& main = {});

namespace oracle {
/// The same by ops::oracle::linear of each group; gradients go to autograd.
at::Tensor grouped_linear(const at::Tensor& x_RI, const std::vector<at::Tensor>& weights_OI,
                          const std::vector<int64_t>& counts);
}  // namespace oracle
}  // namespace danlu::ops
