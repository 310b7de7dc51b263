// train/rollouts/generator.h: answers by the weights that are being trained, on any mesh.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "infer/generate.h"
#include "models/causal_lm.h"
#include "text/tokenizer.h"
#include "train/rollouts/drawing_ranks.h"

namespace danlu::train {

/// Draws answers. Collective over ranks that hold one model together, which give the same requests
/// and get the same answers.
using Generator = std::function<std::vector<infer::Answer>(const std::vector<infer::Request>&)>;

/// Calls use() while a generator may be called: weights that other ranks have are brought once for
/// all of its calls. Collective over all ranks.
using WithWeights = std::function<void(const std::function<void()>& use)>;

/// Words that end answers by their text, which `tokenizer` gives.
struct EndingWords {
  std::vector<std::string> words = {};
  std::shared_ptr<const text::Tokenizer> tokenizer = {};  ///< nullptr where there are none
};

struct Drawing {
  Generator generate;
  WithWeights with_weights;
};

/// Answers of the policy as it is, which outlives it, `batch_size` requests at a time. Collective.
Drawing drawing_of(models::CausalLM& policy, const std::shared_ptr<const DrawingRanks>& ranks,
                   int64_t batch_size, const EndingWords& ending = {});

}  // namespace danlu::train
