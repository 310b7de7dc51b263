// cli/engine/speculation.h: how a server guesses tokens, by vLLM's --speculative-config.
#pragma once
#include "base/options.h"
#include "infer/prompt_lookup.h"

namespace danlu::cli {

struct Speculation {
  infer::PromptLookup lookup = {};  ///< "ngram"
  int64_t predicted_tokens = 0;     ///< "mtp": by the model's layer that predicts further ahead
};

/// Errors: UsageError for other methods, for numbers that make no sense, beside --deterministic.
Speculation speculation_from(const Options& options);

}  // namespace danlu::cli
