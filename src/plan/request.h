// plan/request.h: what a plan is made of, and how it follows from what a training is told.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

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

/// Of the training `config` says, whose samples have up to `longest` tokens. What the devices alone
/// can tell stays as it is without them: `widens`, `packed_columns`.
Request request_of(const settings::TrainConfig& config, const arch::ModelConfig& model,
                   int64_t longest);

}  // namespace danlu::plan
