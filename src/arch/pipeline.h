// arch/pipeline.h: what a stage of a pipeline holds, and what it does in a step: data, made and
// checked without ranks or tensors.
#pragma once
#include <cstdint>
#include <vector>

#include "arch/model_config.h"
#include "arch/placement.h"

namespace danlu::arch {

/// Where in the chain of a decoder a pass is: at the embedding (0), in a layer, at the head and its
/// norm. Each is a place, at which its parameters are needed.
inline constexpr int64_t place_of_layer(int64_t layer) { return layer + 1; }
int64_t place_of_head(const ModelConfig& config);

struct LayerRange {
  int64_t first = 0, end = 0;
  bool operator==(const LayerRange&) const = default;
};

/// What one stage holds of a decoder: a run of layers, or several with other stages' between them
/// (virtual stages), which passes go through one after the other.
struct Stage {
  std::vector<LayerRange> chunks = {};  ///< ascending
  bool has_embedding = true;            ///< before the first chunk
  bool has_head = true;                 ///< and the final norm, behind the last chunk
  /// The head is tied to the embedding of another stage: both hold the table, whose gradient is the
  /// sum of theirs.
  bool copies_embedding = false;

  bool holds(const ParamSpec& spec) const;
  std::vector<int64_t> layers() const;
  /// A table that the head is tied to is needed at the head alone where the embedding is another
  /// stage's.
  int64_t place_of(const ModelConfig& config, const ParamSpec& spec) const;
  int64_t num_chunks() const { return static_cast<int64_t>(chunks.size()); }
  bool begins_at(int64_t chunk) const { return has_embedding && chunk == 0; }
  bool ends_at(int64_t chunk) const { return has_head && chunk + 1 == num_chunks(); }
  /// Whether another stage, which comes before, holds it too.
  bool is_copy(const ParamSpec& spec) const {
    return copies_embedding && spec.role == Role::kEmbedding;
  }
};
/// All of it.
Stage whole_of(const ModelConfig& config);
/// The stages of a pipeline. Errors: as place_layers; UsageError for a stage without layers; a
/// virtual one may have no-op slots alone.
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
  int64_t chunk = 0;  ///< of the stage that acts
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

/// One forward, one backward over `chunks` virtual stages of each stage (interleaved,
/// arXiv:2104.04473 §2.2): groups of micro-batches go through the first chunk of every stage, then
/// through the second, and so on; backwards in the reverse order of chunks. The last stage's chunk
/// c gives to the first one's chunk c + 1. A group has `stages` micro-batches where they divide, as
/// in Megatron-LM; else groups of at least as many, the larger ones first, so that no chunk waits
/// for its group to come round. With n in the first group a stage goes 2 (stages - stage - 1) +
/// (chunks - 1) n forwards ahead and keeps the activations of at most one more.
/// REQUIRES: 0 <= stage < stages; chunks >= 2; num_micro_batches is 0 or >= stages.
Schedule interleaved(int64_t stage, int64_t stages, int64_t chunks, int64_t num_micro_batches);

enum class PipelineOrder { kOneForwardOneBackward, kInterleaved, kZeroBubble };
/// The schedule of that name. REQUIRES: several chunks with kInterleaved, else one.
Schedule schedule_of(PipelineOrder order, int64_t stage, int64_t stages, int64_t chunks,
                     int64_t num_micro_batches);

/// The order in which chunks go forward where nothing goes back, so that every stage has work:
/// kReceiveHidden, kForward and kSendHidden of the above.
Schedule forward_only(int64_t stage, int64_t stages, int64_t chunks, int64_t num_micro_batches);

}  // namespace danlu::arch
