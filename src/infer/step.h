// infer/step.h: one forward pass over several cached sequences.
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "infer/kv_cache.h"
#include "text/tokenizer.h"

namespace danlu::infer {

struct StepInput {
  SequenceId sequence;
  std::vector<text::TokenId> ids;  ///< appended to the sequence; not empty
};

/// Appends the ids and returns the logits after the last of each: f32 [B, vocab] on the CPU,
/// contiguous.
at::Tensor next_logits(const models::CausalLM& model, SequenceCache& cache,
                       const std::vector<StepInput>& inputs);

}  // namespace danlu::infer
