// train/objectives/gathered_vectors.h: the vectors that ranks of the data axis make of their
// micro-batches, on every one of them.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "data/groups.h"
#include "models/causal_lm.h"

namespace danlu::train {

struct GatheredVectors {
  at::Tensor vectors_NH;            ///< f64; the own ones with their grad
  std::vector<data::Group> groups;  ///< of all ranks; segments are rows of vectors_NH
  int64_t first = 0, count = 0;     ///< which of the groups are this rank's
};

/// own_SH: f64, of the batch's S segments. Collective over batch_ranks(); a rank that has no
/// micro-batch calls gather_nothing.
GatheredVectors gather_vectors(const models::CausalLM& policy, const at::Tensor& own_SH,
                               const data::Batch& batch);
void gather_nothing(const models::CausalLM& policy);

}  // namespace danlu::train
