// train/forward_passes.h: passes of a stage without gradients: evaluation, and what objectives need
// before a step.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "data/batch.h"
#include "models/causal_lm.h"
#include "train/stage_links.h"

namespace danlu::train {

class ForwardPasses {
 public:
  /// What is given outlives it.
  ForwardPasses(const models::CausalLM& stage, StageLinks& links) : stage_(stage), links_(links) {}

  const models::CausalLM& stage() const { return stage_; }

  struct How {
    bool adapters = true;                    ///< false: passes are the base model's
    models::PassResults* results = nullptr;  ///< of layers
  };
  /// On the last stage: of batches[index], what forward() gave.
  using OnHidden = std::function<void(size_t index, const at::Tensor& hidden_nH,
                                      const models::ForwardInput& input)>;
  /// The stage's part of passes of `batches`, what this rank has of them, and of nothing where
  /// others of the data axis have more. Without dropout. Collective over the data axis and the
  /// pipeline, whose stages have the same batches.
  void run(const std::vector<const data::Batch*>& batches, const How& how,
           const OnHidden& on_hidden) const;

 private:
  const models::CausalLM& stage_;
  StageLinks& links_;
};

}  // namespace danlu::train
