#include "train/rollouts/answer_passes.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>

namespace danlu::train {

void find_for_tokens(const ForwardPasses& passes, bool adapters, const NumbersOfTokens& numbers,
                     std::vector<float> DrawnAnswer::* into, std::vector<DrawnAnswer>& answers) {
  std::vector<data::Batch> batches;
  for (const DrawnAnswer& answer : answers)
    batches.push_back(data::make_batch({sample_of(answer, false)}));
  std::vector<const data::Batch*> all;
  for (const data::Batch& batch : batches) all.push_back(&batch);
  passes.run(all, {.adapters = adapters},
             [&](size_t index, const at::Tensor& hidden_nH, const models::ForwardInput& input) {
               DrawnAnswer& answer = answers[index];
               std::vector<int64_t> rows, ids;
               for (size_t i = 0; i < answer.ids.size(); ++i) {
                 rows.push_back(static_cast<int64_t>(answer.prompt.size() - 1 + i));
                 ids.push_back(answer.ids[i]);
               }
               const at::TensorOptions options(at::kLong);
               const at::Tensor found_M =
                   numbers(passes.stage(), hidden_nH, input, at::tensor(rows, options),
                           at::tensor(ids, options))
                       .to(at::kCPU, at::kFloat)
                       .contiguous();
               const float* values = found_M.data_ptr<float>();
               (answer.*into).assign(values, values + found_M.numel());
             });
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
