// cli/engine/speculation.h: how tokens are guessed, by vLLM's --speculative-config: "ngram" or
// "mtp".
#pragma once
#include "base/options.h"
#include "infer/sampling.h"
#include "infer/speculation.h"

namespace danlu::cli {

/// Errors: UsageError for other methods, and for numbers that make no sense.
infer::Speculation speculation_from(const Options& options);
/// The same, but an error beside beams, which are searched without guesses.
infer::Speculation speculation_beside(const Options& options,
                                      const infer::SamplingParams& sampling);

}  // namespace danlu::cli
