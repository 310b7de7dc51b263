#include "train/objectives/reference.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <utility>

#include "device/sent.h"
#include "models/training_memory.h"
#include "ops/pointwise.h"
#include "parallel/agree.h"
#include "train/objective.h"

namespace danlu::train {
namespace {

std::vector<at::Tensor> sums_of(const ForwardPasses& passes, bool adapters,
                                const std::vector<const data::Batch*>& parts) {
  std::vector<at::Tensor> sums(parts.size());
  passes.run(parts, {.adapters = adapters},
             [&](size_t i, const at::Tensor& hidden_nH, const models::ForwardInput& input) {
               sums[i] = segment_logprobs(passes.stage(), hidden_nH, input, *parts[i]);
             });
  return sums;
}

}  // namespace

FrozenModel::FrozenModel(std::unique_ptr<models::CausalLM> stage)
    : stage_(std::move(stage)), links_(*stage_) {}

void ask_reference(const FrozenModel* reference, const ForwardPasses& policy,
                   const std::function<void(const ForwardPasses&, bool)>& ask) {
  if (!reference) return ask(policy, /*adapters=*/false);
  // The two stores exchange over the same groups, so the first one's exchanges end before the
  // second one's begin.
  policy.stage().memory().settle();
  ask(ForwardPasses(reference->stage(), reference->links()), /*adapters=*/true);
  reference->stage().memory().settle();
}

std::vector<at::Tensor> reference_logprobs(const FrozenModel* reference,
                                           const ForwardPasses& policy,
                                           const std::vector<const data::Batch*>& parts) {
  std::vector<at::Tensor> sums;
  const bool are_known = std::any_of(parts.begin(), parts.end(), [](const data::Batch* part) {
    return !part->segment_logprobs.empty();
  });
  // A rank without batches learns from the others that there are no passes to join.
  if (parallel::largest_of(policy.stage().mesh().batch_ranks(), are_known ? 1 : 0) > 0) {
    for (const data::Batch* part : parts) {
      sums.push_back(
          device::sent(at::tensor(part->segment_logprobs, at::TensorOptions(at::kDouble)),
                       ops::device_of_numbers(policy.stage().device())));
    }
    return sums;
  }
  ask_reference(reference, policy, [&](const ForwardPasses& passes, bool adapters) {
    sums = sums_of(passes, adapters, parts);
  });
  return sums;
}

std::vector<at::Tensor> policy_logprobs(const ForwardPasses& policy,
                                        const std::vector<const data::Batch*>& parts) {
  return sums_of(policy, /*adapters=*/true, parts);
}

}  // namespace danlu::train
