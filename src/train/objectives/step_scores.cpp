#include "train/objectives/step_scores.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>

#include "base/error.h"
#include "base/ignore_label.h"
#include "data/batch.h"

namespace danlu::train {
namespace {

/// The rows of a pass at which steps end, each so many times.
std::vector<int64_t> rows_of_steps(std::span<const JudgedText> texts, size_t times) {
  std::vector<int64_t> rows;
  int64_t begin = 0;
  for (const JudgedText& text : texts) {
    for (const size_t place : text.places)
      rows.insert(rows.end(), times, begin + static_cast<int64_t>(place));
    begin += std::ssize(text.ids);
  }
  return rows;
}

at::Tensor as_numbers(const std::vector<int64_t>& numbers) {
  return at::tensor(numbers, at::TensorOptions(at::kLong));
}

/// f64 [steps]
at::Tensor scores_in_pass(const models::CausalLM& judge, const at::Tensor& hidden_nH,
                          const models::ForwardInput& input, std::span<const JudgedText> texts,
                          std::span<const int64_t> reward_ids) {
  if (judge.config().score) {
    const at::Tensor scores_SC =
        judge.scores(hidden_nH, input, as_numbers(rows_of_steps(texts, 1)));
    return at::softmax(scores_SC.to(at::kDouble), 1).select(1, 1);
  }
  const std::vector<int64_t> rows = rows_of_steps(texts, reward_ids.size());
  std::vector<int64_t> ids;
  while (ids.size() < rows.size()) ids.insert(ids.end(), reward_ids.begin(), reward_ids.end());
  const ops::TokenLogprobs found =
      judge.token_logprobs(hidden_nH, input, as_numbers(rows), as_numbers(ids));
  // The norm over the whole vocabulary is the same for all candidates, and so cancels out.
  const at::Tensor logprobs_SC =
      found.logprobs_M.to(at::kDouble).view({-1, static_cast<int64_t>(reward_ids.size())});
  return at::softmax(logprobs_SC, 1).select(1, 0);
}

}  // namespace

std::vector<std::vector<double>> step_scores(const FrozenModel& judge,
                                             std::span<const JudgedText> texts,
                                             std::span<const int64_t> reward_ids) {
  std::vector<data::Sample> samples;
  for (const JudgedText& text : texts) {
    data::Sample sample;
    sample.ids = text.ids;
    sample.labels.assign(text.ids.size(), static_cast<int32_t>(kIgnoreLabel));
    samples.push_back(std::move(sample));
  }
  std::vector<std::vector<double>> scores(texts.size());
  if (rows_of_steps(texts, 1).empty()) return scores;
  const data::Batch batch = data::make_batch(samples);
  at::Tensor found_S;
  ForwardPasses(judge.stage(), judge.links())
      .run({&batch}, {},
           [&](size_t, const at::Tensor& hidden_nH, const models::ForwardInput& input) {
             found_S = scores_in_pass(judge.stage(), hidden_nH, input, texts, reward_ids);
           });
  const at::Tensor on_host = found_S.to(at::kCPU).contiguous();
  const double* next = on_host.data_ptr<double>();
  for (size_t i = 0; i < texts.size(); ++i) {
    scores[i].assign(next, next + texts[i].places.size());
    next += texts[i].places.size();
  }
  return scores;
}

}  // namespace danlu::train
