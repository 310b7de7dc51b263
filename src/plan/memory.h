// plan/memory.h: what a rank keeps in training, in bytes, from the model's parameters and how the
// job shares them.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "arch/layer_kind.h"
#include "arch/pipeline.h"
#include "settings/config.h"
#include "weights/lora/peft.h"

namespace danlu::plan {

/// What a plan is made of: no data, no weights.
struct Request {
  arch::ModelConfig model;
  settings::MeshShape mesh;
  arch::PipelineSplit pipeline;
  settings::Sharding sharding = settings::Sharding::kNone;
  settings::RecomputeFlags recompute = {};
  settings::ActivationOffload offload = {};
  settings::Precision precision = settings::Precision::kBF16;
  std::optional<weights::PeftConfig> adapters = {};  ///< what is trained; none: the model
  /// Of the model, by name: what is not, "!" before a pattern: is again, the last that matches
  /// wins.
  std::vector<std::string> freeze = {};
  /// Of the model and of the optimizer: elsewhere than in the rank's memory, be it files or a
  /// device's host.
  bool parameters_in_files = false, state_in_files = false;
  bool widens = false;           ///< attention multiplies 16 bits as f32
  int64_t packed_columns = 64;   ///< a multiple of them is what attention pads a head's width to
  int64_t tokens = 0;            ///< of a sample
  int64_t micro_batch_size = 1;  ///< samples
  int64_t num_micro_batches = 1;
  /// Where the samples of a step are put together: tokens of the longest, and up to how many.
  int64_t longest = 0, packed = 0;

  arch::PipelineOrder order = arch::PipelineOrder::kOneForwardOneBackward;

  /// Other passes of the same step.
  void cut_into(int64_t micro_batches, int64_t samples) {
    num_micro_batches = micro_batches;
    micro_batch_size = samples;
    if (packed > 0) tokens = std::min(longest * micro_batches, std::max(longest, packed));
  }
  /// Of a rank of the context axis.
  int64_t pass_tokens() const {
    const int64_t ranks = mesh.context.size();
    return (tokens * micro_batch_size + ranks - 1) / ranks;
  }
  int64_t element_bytes() const { return precision == settings::Precision::kF32 ? 4 : 2; }
  /// What the rank's memory has of an element's master beside the weight, which in bf16 is half of
  /// it.
  int64_t master_bytes() const {
    if (precision == settings::Precision::kF32) return 0;
    return precision == settings::Precision::kBF16 && !state_in_files ? 2 : 4;
  }
  /// Ranks that share what the sharding names.
  int64_t sharers() const { return mesh.are_some_sharers() ? mesh.sharers : mesh.copies(); }
};

/// Elements of a rank (the first of the tensor axis, which has no fewer than others).
struct Elements {
  int64_t all = 0, trained = 0;
  int64_t largest_unit = 0;  ///< one layer, the embedding or the head
  int64_t largest_trained_unit = 0;
  int64_t ends = 0;      ///< embedding and head
  int64_t products = 0;  ///< of matrices that hidden states are multiplied by
  std::map<int64_t, int64_t> trained_by_place = {};  ///< as parallel::Unit::place
};
/// Errors: UsageError as arch::require_divides.
Elements elements_of(const Request& request, const arch::Stage& stage);

/// A pass of one layer, for kinds of their own.
arch::LayerPass pass_of(const Request& request);

/// Of the stage's layers, those that are recomputed so; without layers 0.
double share_again(const Request& request, const arch::Stage& stage, settings::LayerRecompute kind);

struct Memory {
  int64_t weights = 0, gradients = 0, masters = 0, moments = 0;  ///< between passes
  int64_t activations = 0;  ///< kept for backwards, of all micro-batches under way
  /// Of the layer at hand in backward, or of the head if that is more, beside all activations:
  /// below 0 where more of them has been let go by then.
  int64_t working = 0;
  /// Gradients that have no memory yet when activations and working are what they are: they come
  /// with a step's first backward, as the activations go.
  int64_t gradients_to_come = 0;
  int64_t communication = 0;  ///< gathered parameters, gradients and exchanges under way
  int64_t allocator = 0;      ///< what devices' allocators lose to rounding and gaps

  int64_t kept() const { return weights + gradients + masters + moments; }
  int64_t pass() const { return activations + working + communication - gradients_to_come; }
  int64_t total() const { return kept() + pass() + allocator; }
  /// As people are told: what has been let go by then is no part of the activations.
  Memory in_parts() const;
};

/// Of a rank of the stage that acts so. Kernels as those of CPUs: none keeps scores of attention.
Memory memory_of(const Request& request, const arch::Stage& stage, const arch::Schedule& schedule);

struct StageMemory {
  arch::Stage stage;
  Memory memory;
};
/// Of every stage. Errors: UsageError of sizes that do not go together.
std::vector<StageMemory> memory_by_stage(const Request& request);
/// What stage `index` does in a step.
arch::Schedule schedule_of(const Request& request, const arch::Stage& stage, int64_t index);

}  // namespace danlu::plan
