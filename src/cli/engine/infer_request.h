// cli/engine/infer_request.h: from a question to what the model is asked.
#pragma once
#include <cstdint>

#include "cli/engine/infer_rows.h"
#include "cli/engine/load_for_inference.h"
#include "infer/generate.h"

namespace danlu::cli {

/// The request, judged before any answer is made. Errors: DataError naming the place.
infer::Request checked_request(const Question& question, const InferenceModel& loaded,
                               const infer::SamplingParams& sampling, int64_t max_new_tokens,
                               uint64_t stream);

}  // namespace danlu::cli
