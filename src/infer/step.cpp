#include "infer/step.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>

#include "base/error.h"
#include "device/sent.h"
#include "ops/backend.h"
#include "ops/pointwise.h"

namespace danlu::infer {

namespace {

/// Rows of the pass after which an input wants logits.
void add_rows(const StepInput& input, int64_t end, std::vector<int64_t>& rows) {
  if (input.logits_after == LogitsAfter::kNone) return;
  const int64_t count = input.logits_after == LogitsAfter::kLast ? 1 : std::ssize(input.ids);
  for (int64_t row = end - count; row < end; ++row) rows.push_back(row);
}

/// The number of ids of which each input takes the likeliest; 0: the host needs the logits.
int64_t tokens_looked_at(const std::vector<StepInput>& inputs, int64_t vocabulary) {
  int64_t all = 0;
  for (const StepInput& input : inputs) {
    if (input.logits_after == LogitsAfter::kNone) continue;
    const int64_t one = input.num_tokens > 0 ? std::min(input.num_tokens, vocabulary) : vocabulary;
    if (!input.takes_likeliest || (all > 0 && one != all)) return 0;
    all = one;
  }
  return all;
}

/// Empty: the logits are needed on the host.
std::vector<text::TokenId> likeliest_of(const at::Tensor& logits_RV,
                                        const std::vector<StepInput>& inputs) {
  const ops::Backend& table = ops::completed_backend(logits_RV.device().type());
  if (!table.likeliest) return {};
  const int64_t looked_at = tokens_looked_at(inputs, logits_RV.size(1));
  if (looked_at == 0) return {};
  const at::Tensor kept_RV = logits_RV.narrow(1, 0, looked_at);
  if (!table.all_finite(kept_RV)) return {};
  const at::Tensor ids_R = table.likeliest(kept_RV).to(at::kCPU);
  const int64_t* const ids = ids_R.data_ptr<int64_t>();
  return {ids, ids + ids_R.numel()};
}

/// What a pass leaves where the model is.
struct PassOnDevice {
  at::Tensor hidden_NH;
  at::Tensor logits_RV;  ///< not defined where no input asks for any
};

PassOnDevice pass_of(const models::CausalLM& model, SequenceCache& cache,
                     const std::vector<StepInput>& inputs, models::PassResults* results) {
  std::vector<SequenceCache::Growth> growth;
  PassTokens tokens;
  std::vector<int64_t> asked;
  layers::AdapterRuns runs, runs_of_asked;
  for (const StepInput& input : inputs) {
    if (input.ids.empty()) throw InternalError("[infer] a step without a token");
    tokens.add(input.ids, cache.length(input.sequence), input.pictures);
    const int64_t before = std::ssize(asked);
    add_rows(input, tokens.size(), asked);
    layers::append_run(runs, input.adapter, std::ssize(input.ids));
    layers::append_run(runs_of_asked, input.adapter, std::ssize(asked) - before);
    growth.push_back({input.sequence, static_cast<int64_t>(input.ids.size())});
  }
  models::ForwardInput forward = tokens.input();
  forward.adapter_runs = std::move(runs);
  forward.segments = cache.begin(growth);
  // An encoder's tokens see all of their text, which one pass has.
  if (!model.config().encoder) forward.cache = &cache;
  forward.results = results;
  PassOnDevice pass;
  pass.hidden_NH = model.forward_hidden(forward);
  cache.end();
  if (asked.empty()) return pass;
  const at::TensorOptions options = at::TensorOptions(at::kLong);
  const at::Tensor asked_BH =
      std::ssize(asked) == tokens.size()
          ? pass.hidden_NH
          : ops::take_rows(pass.hidden_NH,
                           device::sent(at::tensor(asked, options), model.device()));
  pass.logits_RV = model.logits(asked_BH, runs_of_asked);
  return pass;
}

}  // namespace

StepResult step(const models::CausalLM& model, SequenceCache& cache,
                const std::vector<StepInput>& inputs, models::PassResults* results) {
  const c10::InferenceMode no_autograd;
  const PassOnDevice pass = pass_of(model, cache, inputs, results);
  StepResult result;
  result.hidden_NH = pass.hidden_NH;
  if (!pass.logits_RV.defined()) {
    result.logits_RV = at::empty({0, model.config().vocab_size}, at::kFloat);
    return result;
  }
  result.likeliest_R = likeliest_of(pass.logits_RV, inputs);
  if (result.likeliest_R.empty())
    result.logits_RV = pass.logits_RV.to(at::kCPU, at::kFloat).contiguous();
  return result;
}

at::Tensor take_part_in_step(const models::CausalLM& model, SequenceCache& cache,
                             const std::vector<StepInput>& inputs) {
  const c10::InferenceMode no_autograd;
  return pass_of(model, cache, inputs, /*results=*/nullptr).hidden_NH;
}

at::Tensor next_logits(const models::CausalLM& model, SequenceCache& cache,
                       const std::vector<StepInput>& inputs, models::PassResults* results) {
  return step(model, cache, inputs, results).logits_RV;
}

std::span<float> answerable(const at::Tensor& logits_BV, size_t index, const Request& request) {
  const int64_t vocab = logits_BV.size(1);
  const int64_t kept = request.num_tokens > 0 ? std::min(request.num_tokens, vocab) : vocab;
  return {logits_BV.data_ptr<float>() + static_cast<int64_t>(index) * vocab,
          static_cast<size_t>(kept)};
}

}  // namespace danlu::infer
