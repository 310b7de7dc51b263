// arch/pipeline.h: what a stage of a pipeline holds, and what it does in a step: data, made and
// checked without ranks or tensors.
#pragma once
#include <cstdint>
#include <vector>

#include "arch/model_config.h"
#include "arch/placement.h"

namespace danlu::arch {

/// A contiguous part of a decoder.
struct Stage {
  int64_t first_layer = 0, end_layer = 0;
  bool has_embedding = true;
  bool has_head = true;  ///< and the final norm
  /// The head is tied to the embedding of another stage: both hold the table, whose gradient is the
  /// sum of theirs.
  bool copies_embedding = false;

  bool holds(const ParamSpec& spec) const;
  /// Whether another stage, which comes before, holds it too.
  bool is_copy(const ParamSpec& spec) const {
    return copies_embedding && spec.role == Role::kEmbedding;
  }
};
/// All of it.
Stage whole_of(const ModelConfig& config);
/// The stages of a pipeline. REQUIRES: no virtual stages. Errors: as place_layers; UsageError for a
/// stage without layers.
std::vector<Stage> stages_of(const ModelConfig& config, const PipelineSplit& split);

/// What a stage does with one micro-batch. kBackward gives the gradients of what came in and of the
/// weights; kBackwardInput leaves those of linear layers' weights to a later kBackwardWeight.
/// Received and sent are hidden states on the way forward and their gradients on the way back.
enum class Work {
  kReceiveHidden,
  kForward,
  kSendHidden,
  kReceiveGrad,
  kBackward,
  kBackwardInput,
  kBackwardWeight,
  kSendGrad,
};
struct Action {
  Work work;
  int64_t micro_batch;
  bool operator==(const Action&) const = default;
};
using Schedule = std::vector<Action>;

/// One-forward-one-backward (PipeDream-Flush, arXiv:2006.09503 §2.2): stage `stage` of `stages`
/// goes stages - stage - 1 micro-batches forward first, then alternates, so that it keeps the
/// activations of at most stages - stage of them. One stage: each micro-batch forward and backward.
/// REQUIRES: 0 <= stage < stages; num_micro_batches >= 0.
Schedule one_forward_one_backward(int64_t stage, int64_t stages, int64_t num_micro_batches);

/// Zero bubble with the memory of the above (ZB-H1, arXiv:2401.10241 §2.2): the weights' gradients
/// of stage `stage` stay that many micro-batches behind, and fill what would be waiting at the end,
/// so that every stage keeps something of at most `stages` micro-batches.
/// REQUIRES: 0 <= stage < stages; num_micro_batches >= 0.
Schedule zero_bubble(int64_t stage, int64_t stages, int64_t num_micro_batches);

}  // namespace danlu::arch
