// cli/engine/chat.h: `danlu chat`, also what `danlu infer` does without a prompt.
#pragma once
#include "base/options.h"
#include "cli/engine/load_for_inference.h"

namespace danlu::cli {

int run_chat_with(const Options& options, InferenceModel& loaded);

}  // namespace danlu::cli
