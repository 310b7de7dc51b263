// arch/pipeline.h: what a stage of a pipeline holds, and in which order it works in a step. Both
// are data, so that tests check them without ranks or tensors.
#pragma once
#include <cstdint>
#include <vector>

#include "arch/chain.h"
#include "arch/model_config.h"
#include "arch/placement.h"

namespace danlu::arch {

struct LayerRange {
  int64_t first = 0, end = 0;
  bool operator==(const LayerRange&) const = default;
};
/// Neighbouring places of the chain; empty where first == end.
struct PlaceRange {
  int64_t first = 0, end = 0;
  bool operator==(const PlaceRange&) const = default;
  bool has(int64_t place) const { return place >= first && place < end; }
};

/// What one stage holds of a model: one chunk of neighbouring places, or with virtual stages
/// several chunks, between which other stages have theirs.
struct Stage {
  Chain chain = {};
  std::vector<PlaceRange> chunks = {};  ///< ascending
  /// The head is tied to an embedding that another stage has, or layers that predict further ahead
  /// read it. Both stages hold the table, and its gradient is the sum of theirs.
  bool copies_embedding = false;

  int64_t num_chunks() const { return static_cast<int64_t>(chunks.size()); }
  const PlaceRange& chunk(int64_t number) const { return chunks[static_cast<size_t>(number)]; }
  bool has(int64_t place) const;
  bool has_embedding() const { return has(chain.embedding()); }
  bool has_head() const { return has(chain.head()); }  ///< the final norm and the head
  bool holds(const ParamSpec& spec) const;
  /// The decoder's layers of a chunk, and those of all chunks.
  LayerRange layers_of(int64_t chunk) const;
  std::vector<int64_t> layers() const;
  /// The tower's blocks of a chunk.
  LayerRange blocks_of(int64_t chunk) const;
  /// The place at which a pass needs the parameter. For a copied embedding that is the head's.
  int64_t place_of(const ParamSpec& spec) const;
  /// Whether a pass begins, meets the embedding, or ends in that chunk.
  bool begins_at(int64_t number) const { return chunk(number).has(0); }
  bool embeds_at(int64_t number) const { return chunk(number).has(chain.embedding()); }
  bool ends_at(int64_t number) const { return chunk(number).has(chain.head()); }
  /// Whether it is the copy of a table that an earlier stage holds too.
  bool is_copy(const ParamSpec& spec) const {
    return copies_embedding && spec.role == Role::kEmbedding;
  }
};
/// Whether the last place of a pass reads the embedding's table too.
bool shares_table(const ModelConfig& config);
/// The one stage of a model that is not cut by a pipeline.
Stage whole_of(const ModelConfig& config);
/// The stages of a pipeline. The embedding stands with the first layer, and the patches and the
/// merger of a tower with its first and last block. Errors: as place_layers; UsageError for a stage
/// without layers and blocks. A chunk of a stage may be without any (no-op slots).
std::vector<Stage> stages_of(const ModelConfig& config, const PipelineLayers& split);

/// What a stage does with one micro-batch. It receives and sends hidden states in the forward, and
/// their gradients in the backward. kBackward computes the gradients of its input and of its
/// weights. kBackwardInput leaves the weights of linear layers to a later kBackwardWeight.
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

/// Zero bubble in the memory of one_forward_one_backward (ZB-H1, arXiv:2401.10241 §2.2): stage
/// `stage` computes gradients of weights `stage` micro-batches late, so that they fill the time at
/// the end in which it would wait. Every stage then keeps something of at most `stages`
/// micro-batches.
/// REQUIRES: 0 <= stage < stages; num_micro_batches >= 0.
Schedule zero_bubble(int64_t stage, int64_t stages, int64_t num_micro_batches);

/// One forward, one backward over `chunks` chunks of each stage (interleaved, arXiv:2104.04473
/// §2.2). A group of micro-batches goes through the first chunk of every stage, then through the
/// second, and so on; backwards take the chunks in reverse order. Chunk c of the last stage gives
/// to chunk c + 1 of the first. If `stages` divides the number of micro-batches, each group has
/// `stages` of them, as in Megatron-LM. Otherwise groups have at least `stages`, and the larger
/// groups come first, so that no chunk waits for its group to come round. A stage goes 2 (stages -
/// stage - 1) + (chunks - 1) n forwards ahead, where n is the size of the first group, and keeps
/// the activations of at most one more.
/// REQUIRES: 0 <= stage < stages; chunks >= 2; num_micro_batches is 0 or >= stages.
Schedule interleaved(int64_t stage, int64_t stages, int64_t chunks, int64_t num_micro_batches);

enum class PipelineOrder { kOneForwardOneBackward, kInterleaved, kZeroBubble };
/// The schedule of that name. REQUIRES: several chunks with kInterleaved, else one.
Schedule schedule_of(PipelineOrder order, int64_t stage, int64_t stages, int64_t chunks,
                     int64_t num_micro_batches);

/// The forwards of the schedules above, with what they receive and send, for passes without
/// backward.
Schedule forward_only(int64_t stage, int64_t stages, int64_t chunks, int64_t num_micro_batches);

}  // namespace danlu::arch
