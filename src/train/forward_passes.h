// train/forward_passes.h: passes of a stage without gradients, for evaluation and for what
// objectives need before a step.
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
  /// REQUIRES: stage and links outlive the object.
  ForwardPasses(const models::CausalLM& stage, StageLinks& links) : stage_(stage), links_(links) {}

  const models::CausalLM& stage() const { return stage_; }

  struct How {
    bool adapters = true;                    ///< false: passes leave adapters out
    models::PassResults* results = nullptr;  ///< collects what layers give
    bool again = false;  ///< the batches will pass once more: their pixels are kept
    /// Called on the last stage in place of on_hidden, where others have a batch and this rank
    /// none.
    std::function<void()> on_nothing = {};
  };
  /// Called on the last stage with what forward() gave for batches[index].
  using OnHidden = std::function<void(size_t index, const at::Tensor& hidden_nH,
                                      const models::ForwardInput& input)>;
  /// Runs the stage's part of a pass for each of `batches`, which are this rank's parts of whole
  /// batches. If other ranks of the data axis have more batches, this rank joins in their
  /// exchanges. There is no dropout. Collective over the data axis and the pipeline; every stage
  /// gets the same batches.
  void run(const std::vector<const data::Batch*>& batches, const How& how,
           const OnHidden& on_hidden) const;

 private:
  const models::CausalLM& stage_;
  StageLinks& links_;
};

}  // namespace danlu::train
