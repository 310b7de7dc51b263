// infer/predicted_drafts.h: guesses at the next tokens by the model's layer that predicts further
// ahead (multi-token prediction). Like vLLM's "mtp", the first of these layers is asked again for
// each further guess, with its own last one.
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "infer/kv_cache.h"
#include "text/tokenizer.h"

namespace danlu::infer {

/// Tokens of a sequence that the model has computed and the layer has not.
struct PredictionInput {
  SequenceId sequence;
  int64_t first;                    ///< place of the first of them
  int64_t first_row;                ///< the row of its hidden state in the pass
  std::vector<text::TokenId> next;  ///< the token after each
  int64_t most = 0;                 ///< how many guesses are wanted after the last of `next`
  int64_t num_tokens = 0;           ///< ids from here on are no guesses; 0: all may be
};

/// Computes the layer's keys and values of these tokens in their pages, and guesses; fewer where
/// the cache has no room for more. One list for each input. hidden_NH: of a pass, after the final
/// norm. Collective over the tensor axis, on which all take the guesses of its first rank.
/// REQUIRES: the model's network has such a layer, the cache a place for it, and only the tensor
/// axis cuts both.
std::vector<std::vector<text::TokenId>> predicted_drafts(
    const models::CausalLM& model, SequenceCache& cache, const at::Tensor& hidden_NH,
    const std::vector<PredictionInput>& inputs);

}  // namespace danlu::infer
