// infer/pass_parts.h: what the engine's passes compute of its requests.
#pragma once
#include <cstdint>
#include <vector>

#include "infer/kv_cache.h"
#include "infer/live_request.h"
#include "infer/step.h"

namespace danlu::infer {

/// The next tokens of a request that runs, its drafts last.
struct PassPart {
  LiveRequest* live;
  int64_t tokens;
};

/// One pass, rows of one adapter side by side, unless an adapter shares its pass with no other.
/// each_alone: a pass for each; most_tokens: what is longer has one to itself, so that it fails
/// alone where memory is short.
std::vector<std::vector<PassPart>> passes_of(std::vector<PassPart> parts, bool each_alone,
                                             int64_t most_tokens);

std::vector<StepInput> inputs_of(const std::vector<PassPart>& parts, const SequenceCache& cache);

/// What a pass computes of a request: from where in its text on, and in which rows.
struct ComputedPart {
  RequestHandle handle;
  int64_t first_place, first_row;
};
/// Before the pass.
std::vector<ComputedPart> computed_by(const std::vector<PassPart>& parts,
                                      const SequenceCache& cache);

}  // namespace danlu::infer
