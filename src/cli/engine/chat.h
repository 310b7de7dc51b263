// cli/engine/chat.h: `danlu chat`, also what `danlu infer` does without a prompt.
#pragma once
#include "base/options.h"
#include "cli/engine/load_for_inference.h"

namespace danlu::cli {

/// With the tokens chosen as `sampling` says. Errors: ModelError without an encoder.
int run_chat_with(const Options& options, InferenceModel& loaded,
                  const infer::SamplingParams& sampling);

}  // namespace danlu::cli
