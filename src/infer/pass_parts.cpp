#include "infer/pass_parts.h"

#include <algorithm>

namespace danlu::infer {

std::vector<std::vector<PassPart>> passes_of(std::vector<PassPart> parts, bool each_alone,
                                             int64_t most_tokens) {
  std::stable_sort(parts.begin(), parts.end(), [](const PassPart& a, const PassPart& b) {
    return a.live->adapter_id() < b.live->adapter_id();
  });
  const bool mixes = std::all_of(parts.begin(), parts.end(), [](const PassPart& part) {
    return !part.live->asked.adapter || part.live->asked.adapter->mixes;
  });
  std::vector<std::vector<PassPart>> passes;
  for (const PassPart& part : parts) {
    if (part.tokens > most_tokens) {
      passes.insert(passes.begin(), {part});
      continue;
    }
    const bool joins =
        !passes.empty() && !each_alone && passes.back().front().tokens <= most_tokens &&
        (mixes || passes.back().front().live->adapter_id() == part.live->adapter_id());
    if (!joins) passes.emplace_back();
    passes.back().push_back(part);
  }
  return passes;
}

std::vector<StepInput> inputs_of(const std::vector<PassPart>& parts, const SequenceCache& cache) {
  std::vector<StepInput> inputs;
  for (const PassPart& part : parts) {
    const LiveRequest& live = *part.live;
    const auto from = live.seen.begin() + cache.length(live.sequence);
    const auto end = from + part.tokens - std::ssize(live.drafts);
    StepInput input{live.sequence, {from, end}, live.pictures.get()};
    input.ids.insert(input.ids.end(), live.drafts.begin(), live.drafts.end());
    input.adapter = live.asked.adapter.get();
    input.takes_likeliest = live.takes_likeliest();
    input.num_tokens = live.asked.request.num_tokens;
    if (live.asked.pooling)
      input.logits_after = LogitsAfter::kNone;
    else if (live.wants_prompt_logprobs() || !live.drafts.empty())
      input.logits_after = LogitsAfter::kEach;
    else if (end != live.seen.end())
      input.logits_after = LogitsAfter::kNone;
    inputs.push_back(std::move(input));
  }
  return inputs;
}

std::vector<ComputedPart> computed_by(const std::vector<PassPart>& parts,
                                      const SequenceCache& cache) {
  std::vector<ComputedPart> all;
  int64_t row = 0;
  for (const PassPart& part : parts) {
    all.push_back({part.live->handle, cache.length(part.live->sequence), row});
    row += part.tokens;
  }
  return all;
}

}  // namespace danlu::infer
