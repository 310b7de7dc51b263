// train/rollouts/generator.h: answers by the weights that are being trained, on any mesh.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "infer/generate.h"
#include "models/causal_lm.h"
#include "train/rollouts/drawing_ranks.h"

namespace danlu::train {

/// Draws answers. Collective over ranks that hold one model together, which give the same requests
/// and get the same answers.
using Generator = std::function<std::vector<infer::Answer>(const std::vector<infer::Request>&)>;

/// Calls use() while a generator may be called: weights that other ranks have are brought once for
/// all of its calls. Collective over all ranks.
using WithWeights = std::function<void(const std::function<void()>& use)>;

struct Drawing {
  Generator generate;
  WithWeights with_weights;
};

/// Answers of the policy as it is, `batch_size` requests at a time. Both arguments outlive it.
/// Collective.
Drawing drawing_of(models::CausalLM& policy, const std::shared_ptr<const DrawingRanks>& ranks,
                   int64_t batch_size);

}  // namespace danlu::train
