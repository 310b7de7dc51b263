// infer/speculation.h: how tokens are guessed before the model has computed them.
#pragma once
#include <cstdint>

#include "infer/prompt_lookup.h"

namespace danlu::infer {

/// One of both at most. A guess counts only where it is what would have been drawn.
struct Speculation {
  PromptLookup lookup = {};      ///< in the text so far
  int64_t predicted_tokens = 0;  ///< by the model's layer that predicts further ahead; 0: none
  bool guesses() const { return lookup.num_tokens > 0 || predicted_tokens > 0; }
};

}  // namespace danlu::infer
