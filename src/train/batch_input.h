// train/batch_input.h: a batch as a model takes it.
#pragma once
#include <deque>
#include <vector>

#include "arch/pipeline.h"
#include "data/batch.h"
#include "models/causal_lm.h"

namespace danlu::train {

/// The part of a batch that this rank of the context axis works on. All ranks of the axis are given
/// the same batch; a rank that is alone on it gets all of it.
data::Batch own_part(const parallel::Mesh& mesh, const data::Batch& batch);

/// own_part of each of several batches.
class OwnParts {
 public:
  /// Keeps references to `whole` where this rank has all of it.
  OwnParts(const parallel::Mesh& mesh, const std::vector<const data::Batch*>& whole);
  const std::vector<const data::Batch*>& batches() const { return batches_; }

 private:
  std::deque<data::Batch> cut_;
  std::vector<const data::Batch*> batches_;
};

/// The part that this rank has of a batch with tokens and nothing to learn. Where experts are
/// divided among ranks, one that has no micro-batch takes part in a pass with it, because others
/// send rows to its experts.
data::Batch filling(const parallel::Mesh& mesh);
/// A number of the head over the last stage's hidden states of filling, and the 0 that its backward
/// begins with: it goes through the network, where other ranks wait for this one.
struct LossOfFilling {
  at::Tensor sum, grad;
};
LossOfFilling loss_of_filling(const models::CausalLM& stage, const at::Tensor& hidden_NH,
                              const models::ForwardInput& input);
/// Makes `filler` the micro-batches of the schedule that `batches` lacks.
void fill_up(std::vector<const data::Batch*>& batches, const arch::Schedule& schedule,
             const data::Batch& filler);

/// What is random in the passes of a step.
struct PassNoise {
  uint64_t seed = 0;       ///< the step's, of the dropout of adapters and of the noise
  double noise_alpha = 0;  ///< of the noise on embeddings; 0: none
  bool drops = true;       ///< whether adapters have their dropout
};

/// A batch as a pass of training takes it. Its tensors are views of the batch's memory on the host,
/// so the batch must outlive the pass; the pass moves what a device needs. The noise of a token is
/// uniform in ± noise_alpha / √(L H), L the number of tokens of its whole segment and H the hidden
/// size. chunk: as add_visuals; waited_s: as PixelUse. Source of the noise: NEFTune, arXiv
/// 2310.05914.
models::ForwardInput training_input(const models::CausalLM& model, const data::Batch& batch,
                                    const PassNoise& noise, int64_t chunk = 0,
                                    double* waited_s = nullptr);
/// A key of each token's random numbers in the step of this seed: int64 [N].
at::Tensor token_keys_of(const data::Batch& batch, uint64_t seed);
/// Its targets: int64 [N], a view of the batch's memory.
at::Tensor targets_of(const data::Batch& batch);
/// Ids and targets of the whole batch that it is a part of, likewise.
at::Tensor all_ids_of(const data::Batch& batch);
at::Tensor all_targets_of(const data::Batch& batch);
/// How much of the step's weight lies in each segment of the batch, by its targets that are here.
std::vector<double> segment_weights(const data::Batch& batch, double weight_of_target);
/// A batch as a pass without dropout takes it. again: as data::PendingPixels::take.
models::ForwardInput evaluation_input(const models::CausalLM& model, const data::Batch& batch,
                                      int64_t chunk = 0, bool again = false);

}  // namespace danlu::train
