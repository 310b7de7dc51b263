#include "infer/predicted_drafts.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <utility>

#include "device/sent.h"
#include "infer/prompt_pictures.h"
#include "ops/pointwise.h"

namespace danlu::infer {
namespace {

at::Tensor rows_of(const at::Tensor& all_NH, const std::vector<int64_t>& rows) {
  const at::TensorOptions options = at::TensorOptions(at::kLong);
  return ops::take_rows(all_NH, device::sent(at::tensor(rows, options), all_NH.device()));
}

/// The likeliest token of a row; what is no number is never it.
text::TokenId best_token(const at::Tensor& logits_nV, int64_t row, int64_t num_tokens) {
  const int64_t vocab = logits_nV.size(1),
                kept = num_tokens > 0 ? std::min(num_tokens, vocab) : vocab;
  const float* const logits = logits_nV.data_ptr<float>() + row * vocab;
  int64_t best = 0;
  for (int64_t id = 1; id < kept; ++id) {
    if (logits[id] > logits[best]) best = id;
  }
  return static_cast<text::TokenId>(best);
}

/// The guess at each row, the same on all ranks of the tensor axis: unlike processors round
/// otherwise, and the next pass is of one text.
std::vector<text::TokenId> best_tokens(const models::CausalLM& model, const at::Tensor& given_nV,
                                       const std::vector<PredictionInput>& inputs,
                                       const std::vector<size_t>& asked) {
  const at::Tensor logits_nV = given_nV.to(at::kCPU, at::kFloat).contiguous();
  std::vector<int64_t> best;
  for (size_t n = 0; n < asked.size(); ++n)
    best.push_back(best_token(logits_nV, static_cast<int64_t>(n), inputs[asked[n]].num_tokens));
  at::Tensor best_n = at::from_blob(best.data(), {std::ssize(best)}, at::TensorOptions(at::kLong));
  model.mesh().tensor().broadcast(best_n, 0);
  return {best.begin(), best.end()};
}

}  // namespace

std::vector<std::vector<text::TokenId>> predicted_drafts(
    const models::CausalLM& model, SequenceCache& cache, const at::Tensor& hidden_NH,
    const std::vector<PredictionInput>& inputs) {
  const c10::InferenceMode no_autograd;
  std::vector<std::vector<text::TokenId>> drafts(inputs.size());
  std::vector<SequenceCache::Span> spans;
  std::vector<size_t> asked;  // the inputs of which a guess is wanted
  std::vector<int64_t> rows;  // of what the layer gives, the last of each of them
  std::vector<at::Tensor> hidden;
  PassTokens tokens;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const PredictionInput& input = inputs[i];
    tokens.add(input.next, input.first, nullptr);
    spans.push_back({input.sequence, input.first, std::ssize(input.next)});
    hidden.push_back(hidden_NH.narrow(0, input.first_row, std::ssize(input.next)));
    if (input.most <= 0) continue;
    asked.push_back(i);
    rows.push_back(tokens.size() - 1);
  }
  at::Tensor given_NH = at::cat(hidden);
  while (!spans.empty()) {
    const std::optional<ops::Segments> segments = cache.begin_again(spans);
    if (!segments) break;  // no page is free for a guess
    models::ForwardInput forward = tokens.input();
    forward.segments = *segments;
    forward.cache = &cache;
    const at::Tensor made_NH = model.forward_prediction(forward, given_NH);
    cache.end_again();
    if (asked.empty()) break;
    given_NH = rows_of(made_NH, rows);
    const std::vector<text::TokenId> best =
        best_tokens(model, model.prediction_logits(given_NH), inputs, asked);
    tokens = PassTokens();
    spans.clear();
    rows.clear();
    std::vector<size_t> again;
    std::vector<int64_t> kept;
    for (size_t n = 0; n < asked.size(); ++n) {
      const PredictionInput& input = inputs[asked[n]];
      std::vector<text::TokenId>& own = drafts[asked[n]];
      own.push_back(best[n]);
      if (std::ssize(own) == input.most) continue;
      const int64_t place = input.first + std::ssize(input.next) + std::ssize(own) - 1;
      tokens.add(std::span(own).last(1), place, nullptr);
      spans.push_back({input.sequence, place, 1});
      rows.push_back(std::ssize(again));
      again.push_back(asked[n]);
      kept.push_back(static_cast<int64_t>(n));
    }
    if (again.empty()) break;
    given_NH = rows_of(given_NH, kept);
    asked = std::move(again);
  }
  // Pages that only guesses have needed.
  for (const PredictionInput& input : inputs)
    cache.truncate(input.sequence, cache.length(input.sequence));
  return drafts;
}

}  // namespace danlu::infer
