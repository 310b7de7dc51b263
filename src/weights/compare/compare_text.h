// weights/compare/compare_text.h: a comparison of two checkpoints in words and as JSON.
#pragma once
#include <string>

#include "base/json.h"
#include "weights/compare/compare.h"

namespace danlu::weights {

/// Tables of what differs, worst first, and one line for what does not:
///
///     1 tensor only in B:
///       F32  [97, 32]             lm_head.weight
///     1 tensor of other values, worst first:
///         max abs   max rel   differing elements  worst at       tensor
///       0.000488    0.0078          12 (0.39 %)  [3, 17]        model.norm.weight
///     289 tensors are bit-identical
///
/// `every_tensor`: tables are not cut to 20 lines, and identical tensors are listed too. Lines end
/// in '\n'.
std::string describe_comparison(const Comparison& comparison, bool every_tensor);

/// {"identical": …, "tensors": 290, "counts": {verdict: number}, "differences": [{"name",
/// "verdict", "a": {"dtype", "shape"}, "b", "differing", "first", "worst", "max_abs", "max_rel",
/// "one_sided_nans"}]}, worst first; indices are lists of one number per dimension; an infinite
/// difference is "inf". `every_tensor`: identical ones too.
Json comparison_json(const Comparison& comparison, bool every_tensor);

}  // namespace danlu::weights
