// parallel/collectives.h: collectives that autograd passes through.
#pragma once
#include "parallel/group.h"

namespace danlu::parallel {

/// Identity forward, sum over ranks backward: the entry of a region whose ranks use one input for
/// different outputs. A group of one: `x` itself.
at::Tensor copy_to(const at::Tensor& x, const Group& group);

/// Sum over ranks forward, identity backward: the exit of a region whose ranks hold partial sums.
/// A group of one: `x` itself.
at::Tensor sum_over(const at::Tensor& x, const Group& group);

}  // namespace danlu::parallel
