// infer/step.h: one forward pass over several cached sequences.
#pragma once
#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "infer/generate.h"
#include "infer/kv_cache.h"
#include "text/tokenizer.h"

namespace danlu::infer {

/// Behind which of its tokens a pass gives logits.
enum class LogitsAfter { kNone, kLast, kEach };

struct StepInput {
  SequenceId sequence;
  std::vector<text::TokenId> ids;            ///< appended to the sequence; not empty
  const PromptPictures* pictures = nullptr;  ///< of the whole sequence
  LogitsAfter logits_after = LogitsAfter::kLast;
  const layers::AdapterSet* adapter = nullptr;  ///< of its tokens
  /// Nothing is asked of its logits but the place of the largest.
  bool takes_likeliest = false;
  int64_t num_tokens = 0;  ///< of ids below this one; 0: of all. A vocabulary is often padded.
};

struct StepResult {
  at::Tensor hidden_NH;  ///< after the final norm, of all tokens, where the model is
  /// What the inputs ask for, in their order: f32 [rows, vocab] on the CPU, contiguous.
  at::Tensor logits_RV;
  /// Instead of the logits, where all inputs take the likeliest token, these are finite, and the
  /// device can tell: a token for each row.
  std::vector<text::TokenId> likeliest_R;
};
/// Appends the ids and computes them in one pass. results: what layers give beside hidden states;
/// nullptr: it is dropped.
StepResult step(const models::CausalLM& model, SequenceCache& cache,
                const std::vector<StepInput>& inputs, models::PassResults* results = nullptr);
/// The same for a rank that holds a part of the model and draws nothing: it takes part in the
/// exchanges of the logits and copies none to the host. Returns hidden_NH.
at::Tensor take_part_in_step(const models::CausalLM& model, SequenceCache& cache,
                             const std::vector<StepInput>& inputs);
/// The logits of it alone.
at::Tensor next_logits(const models::CausalLM& model, SequenceCache& cache,
                       const std::vector<StepInput>& inputs,
                       models::PassResults* results = nullptr);

/// Row `index` without the ids the request must not answer with.
std::span<float> answerable(const at::Tensor& logits_BV, size_t index, const Request& request);

}  // namespace danlu::infer
