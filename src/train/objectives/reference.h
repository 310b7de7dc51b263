// train/objectives/reference.h: the model that preferences are measured against.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

#include "data/batch.h"
#include "models/causal_lm.h"
#include "train/forward_passes.h"
#include "train/stage_links.h"

namespace danlu::train {

/// A frozen stage beside the policy's, on the same mesh.
class FrozenModel {
 public:
  explicit FrozenModel(std::unique_ptr<models::CausalLM> stage);
  const models::CausalLM& stage() const { return *stage_; }
  StageLinks& links() const { return links_; }

 private:
  std::unique_ptr<models::CausalLM> stage_;
  mutable StageLinks links_;  // carries nothing from one pass to the next
};

/// Calls ask(passes, adapters) with those of the reference: a frozen model's, or where there is
/// none (nullptr) the policy's, without its adapters. Collective as what it asks.
void ask_reference(const FrozenModel* reference, const ForwardPasses& policy,
                   const std::function<void(const ForwardPasses& passes, bool adapters)>& ask);

/// For each of this rank's parts of batches the sums of its segments' log-probabilities, f64 [S],
/// on the last stage; elsewhere undefined. reference: nullptr: the policy without adapters. Batches
/// that hold them already need no pass. Collective like ForwardPasses::run.
std::vector<at::Tensor> reference_logprobs(const FrozenModel* reference,
                                           const ForwardPasses& policy,
                                           const std::vector<const data::Batch*>& parts);

/// The same of the policy as it is.
std::vector<at::Tensor> policy_logprobs(const ForwardPasses& policy,
                                        const std::vector<const data::Batch*>& parts);

}  // namespace danlu::train
