// Rotary position embeddings on rows of an even width.
#pragma once

#include "ops/kinds.h"

namespace npu_sim {

/// The rules of aclnnRotaryPositionEmbedding for x and its tables.
void check_rotary(Plan& p, const Tensor& x, const Tensor& cos, const Tensor& sin, int64_t mode);
/// x turned by the tables; `back`: the transpose of that, which the backward pass needs.
std::vector<double> rotated(const Run& run, const Tensor& x, const Tensor& cos, const Tensor& sin,
                            int64_t mode, bool back);

}  // namespace npu_sim
