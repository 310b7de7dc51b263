#include "train/rollouts/answer_passes.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>

#include <algorithm>

#include "train/batch_input.h"

namespace danlu::train {
namespace {

/// The tokens of an answer that are predicted in one part of prompt and answer.
struct TokensHere {
  std::vector<int64_t> rows, ids;  ///< rows of the part
  std::vector<size_t> numbers;     ///< in the answer
};

TokensHere tokens_here(const DrawnAnswer& answer, const data::Batch& part) {
  std::vector<RowRange> ranges = part.rows;
  if (ranges.empty()) ranges = {{0, static_cast<int64_t>(part.ids.size())}};
  const int64_t first = std::ssize(answer.prompt) - 1, end = first + std::ssize(answer.ids);
  TokensHere found;
  int64_t before = 0;  // rows of earlier ranges
  for (const RowRange& range : ranges) {
    for (int64_t at = std::max(first, range.begin); at < std::min(end, range.end); ++at) {
      const auto number = static_cast<size_t>(at - first);
      found.rows.push_back(before + at - range.begin);
      found.ids.push_back(answer.ids[number]);
      found.numbers.push_back(number);
    }
    before += range.size();
  }
  return found;
}

std::vector<float> numbers_of(const at::Tensor& of_device) {
  const at::Tensor on_host = of_device.to(at::kCPU, at::kFloat).contiguous();
  const float* values = on_host.data_ptr<float>();
  return {values, values + on_host.numel()};
}

/// Gives every rank of the pipeline and of the context axis the numbers of all tokens, of which
/// each has some and 0 for the others; on the tensor axis those of its first rank.
void sum_over_parts(const models::CausalLM& model, std::vector<float> DrawnAnswer::* into,
                    std::vector<DrawnAnswer>& answers) {
  const parallel::Group &context = model.mesh().context().all(), &stages = model.mesh().pipeline();
  const parallel::Group& tensor = model.mesh().tensor();
  if (context.is_alone() && stages.is_alone() && tensor.is_alone()) return;
  std::vector<float> all;
  for (const DrawnAnswer& answer : answers)
    all.insert(all.end(), (answer.*into).begin(), (answer.*into).end());
  if (all.empty()) return;
  at::Tensor sum = at::tensor(all, at::TensorOptions(at::kFloat)).to(model.device());
  context.all_reduce_sum(sum);
  stages.all_reduce_sum(sum);
  if (!tensor.is_alone()) tensor.broadcast(sum, 0);
  const std::vector<float> numbers = numbers_of(sum);
  auto next = numbers.begin();
  for (DrawnAnswer& answer : answers) {
    const auto end = next + std::ssize(answer.ids);
    (answer.*into).assign(next, end);
    next = end;
  }
}

}  // namespace

void find_for_tokens(const ForwardPasses& passes, bool adapters, const NumbersOfTokens& numbers,
                     std::vector<float> DrawnAnswer::* into, std::vector<DrawnAnswer>& answers) {
  std::vector<data::Batch> batches;
  for (const DrawnAnswer& answer : answers)
    batches.push_back(data::make_batch({sample_of(answer, false)}));
  std::vector<const data::Batch*> whole;
  for (const data::Batch& batch : batches) whole.push_back(&batch);
  const OwnParts parts(passes.stage().mesh(), whole);
  for (DrawnAnswer& answer : answers) (answer.*into).assign(answer.ids.size(), 0);
  passes.run(parts.batches(), {.adapters = adapters},
             [&](size_t index, const at::Tensor& hidden_nH, const models::ForwardInput& input) {
               DrawnAnswer& answer = answers[index];
               const TokensHere here = tokens_here(answer, *parts.batches()[index]);
               const at::TensorOptions options(at::kLong);
               const std::vector<float> found = numbers_of(numbers(passes.stage(), hidden_nH, input,
                                                                   at::tensor(here.rows, options),
                                                                   at::tensor(here.ids, options)));
               for (size_t i = 0; i < here.numbers.size(); ++i)
                 (answer.*into)[here.numbers[i]] = found[i];
             });
  sum_over_parts(passes.stage(), into, answers);
}

NumbersOfTokens logprobs_at(double temperature) {
  return [temperature](const models::CausalLM& model, const at::Tensor& hidden_nH,
                       const models::ForwardInput& input, const at::Tensor& rows_M,
                       const at::Tensor& ids_M) {
    return model.token_logprobs(hidden_nH, input, rows_M, ids_M, {.temperature = temperature})
        .logprobs_M;
  };
}

}  // namespace danlu::train
