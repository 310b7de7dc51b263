#include "infer/step.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>

#include "base/error.h"
#include "ops/pointwise.h"

namespace danlu::infer {

at::Tensor next_logits(const models::CausalLM& model, SequenceCache& cache,
                       const std::vector<StepInput>& inputs) {
  const c10::InferenceMode no_autograd;
  std::vector<SequenceCache::Growth> growth;
  PassTokens tokens;
  std::vector<int64_t> asked;
  for (const StepInput& input : inputs) {
    if (input.ids.empty()) throw InternalError("[infer] a step without a token");
    tokens.add(input.ids, cache.length(input.sequence), input.pictures);
    if (input.logits_after == LogitsAfter::kLast) asked.push_back(tokens.size() - 1);
    if (input.logits_after == LogitsAfter::kEach) {
      for (int64_t row = tokens.size() - std::ssize(input.ids); row < tokens.size(); ++row)
        asked.push_back(row);
    }
    growth.push_back({input.sequence, static_cast<int64_t>(input.ids.size())});
  }
  models::ForwardInput forward = tokens.input();
  const at::TensorOptions options = at::TensorOptions(at::kLong);
  forward.segments = cache.begin(growth);
  forward.cache = &cache;
  const at::Tensor hidden_NH = model.forward_hidden(forward);
  cache.end();
  if (asked.empty()) return at::empty({0, model.config().vocab_size}, at::kFloat);
  const at::Tensor asked_BH =
      std::ssize(asked) == tokens.size()
          ? hidden_NH
          : ops::take_rows(hidden_NH, at::tensor(asked, options).to(model.device()));
  return model.logits(asked_BH).to(at::kCPU, at::kFloat).contiguous();
}

std::span<float> answerable(const at::Tensor& logits_BV, size_t index, const Request& request) {
  const int64_t vocab = logits_BV.size(1);
  const int64_t kept = request.num_tokens > 0 ? std::min(request.num_tokens, vocab) : vocab;
  return {logits_BV.data_ptr<float>() + static_cast<int64_t>(index) * vocab,
          static_cast<size_t>(kept)};
}

}  // namespace danlu::infer
