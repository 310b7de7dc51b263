// weights/hf/block_scales.h: matrices that files hold in 8 bits, with a factor for each block.
#pragma once
#include <memory>

#include "weights/tensor_source.h"

namespace danlu::weights {

/// DeepSeek-V3's form, and that of Qwen3's FP8 releases: beside a matrix NAME of F8_E4M3 a matrix
/// NAME_scale_inv of F32, BF16 or F16, with one number for each 128 x 128 block, the last ones cut
/// off where the matrix ends. Gives the source with the products alone, under NAME and as F32; the
/// same source if it has no such matrices. Errors: ModelError for factors of another shape or type,
/// or of a matrix that is not there.
std::shared_ptr<const TensorSource> with_block_scales(std::shared_ptr<const TensorSource> source);

/// Rows and columns of a block.
inline constexpr int64_t kScaledBlock = 128;

}  // namespace danlu::weights
