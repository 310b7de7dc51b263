// parallel/exchange.h: rows that ranks send to one another, as many to each as they like.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "parallel/group.h"

namespace danlu::parallel {

/// The first sends[0] rows of x_RH go to rank 0 of the group, the next sends[1] to rank 1, and so
/// on; the result has receives[r] rows of rank r, in the order of ranks. Backward sends gradients
/// the other way. `group` outlives the graph. Collective, also where this rank has no rows.
/// REQUIRES: sends[r] of rank s is receives[s] of rank r, and they add up to x's rows.
at::Tensor exchange_rows(const at::Tensor& x_RH, const std::vector<int64_t>& sends,
                         const std::vector<int64_t>& receives, const Group& group);

}  // namespace danlu::parallel
