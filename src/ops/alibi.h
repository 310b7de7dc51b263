// ops/alibi.h: slopes of attention with linear biases (arXiv:2108.12409).
#pragma once
#include <cstdint>
#include <vector>

namespace danlu::ops {

/// One slope per head. n a power of two: 2^(-8 i/n), i = 1..n; otherwise those of the largest power
/// of two p below n, then every second one of the 2p list until there are n.
std::vector<double> alibi_slopes(int64_t num_heads);

}  // namespace danlu::ops
