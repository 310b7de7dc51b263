// weights/convert/joined_source.h: two sets of global tensors as one: a model and its optimizer's
// state, or its adapters.
#pragma once
#include <memory>

#include "weights/tensor_source.h"

namespace danlu::weights {

/// The tensors of both, which have no name in common.
std::shared_ptr<const TensorSource> join_tensors(std::shared_ptr<const TensorSource> first,
                                                 std::shared_ptr<const TensorSource> second);

/// The tensors of both; `state` may be null. With a state, "master.X" is there for every X of the
/// model: where the optimizer keeps none (it trains F32 weights) it is X itself.
/// `weights_from_masters`: X is "master.X", for storing F32 weights that were trained in fewer
/// bits.
std::shared_ptr<const TensorSource> join_optimizer(std::shared_ptr<const TensorSource> model,
                                                   std::shared_ptr<const TensorSource> state,
                                                   bool weights_from_masters = false);

}  // namespace danlu::weights
