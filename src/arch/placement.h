// arch/placement.h: which layers stand in which stage of a pipeline: one rule for models that are
// trained, the native format and Megatron's.
//
// Rules: Megatron-LM core_v0.8.0 (core/transformer, training/arguments.py) and MindSpeed-LLM v2.0.0
// (custom layer lists, no-op layers); docs/formats/megatron.md.
#pragma once
#include <cstdint>
#include <vector>

namespace danlu::arch {

struct PipelineLayers {
  int64_t stages = 1;
  /// --num-layers-per-virtual-pipeline-stage; 0: no virtual stages.
  int64_t layers_per_virtual_stage = 0;
  int64_t virtual_stages = 0;             ///< the same by their number in each stage; 0: not said
  std::vector<int64_t> layer_list = {};   ///< --num-layer-list: slots of each stage; empty: equal
  std::vector<int64_t> noop_layers = {};  ///< --noop-layers: global slots without tensors
  /// Layers of each chunk of each stage (MindSpeed-MM's nested pipeline_num_layers),
  /// [chunk][stage]; empty: not said so. It takes the place of the settings above.
  std::vector<std::vector<int64_t>> chunk_list = {};
  /// The same of the blocks of a vision tower; empty: all are in the first chunk of the first
  /// stage.
  std::vector<std::vector<int64_t>> block_list = {};
  bool is_virtual() const {
    return layers_per_virtual_stage > 0 || virtual_stages > 0 || chunk_list.size() > 1;
  }
};

/// The split of a frozen model of `num_layers` layers beside one of `own_layers`, which `split` is
/// for: the same where they are as many, else stages as equal as can be, without virtual ones.
PipelineLayers split_beside(const PipelineLayers& split, int64_t own_layers, int64_t num_layers);

/// layers[stage][chunk][local index]: the model's layer, or kNoopLayer. One chunk without virtual
/// stages.
using Placement = std::vector<std::vector<std::vector<int64_t>>>;
inline constexpr int64_t kNoopLayer = -1;

/// Errors: UsageError that names the sizes that would do: stages that do not divide the slots, a
/// list that does not sum to them, a no-op slot outside them, virtual stages with a list or of a
/// negative length.
Placement place_layers(const PipelineLayers& split, int64_t num_layers);

/// How many blocks of a vision tower each chunk of each stage has, [chunk][stage]; all 0 where
/// num_blocks < 1. Errors: UsageError for lists of other sizes or sums, and for a block after a
/// layer of the decoder.
std::vector<std::vector<int64_t>> place_blocks(const PipelineLayers& split,
                                               const Placement& placement, int64_t num_blocks);

/// Errors: UsageError with the sizes that do, unless `size` (of `what`) divides `number` (of `of`).
void require_divides(const char* what, int64_t size, const char* of, int64_t number);

}  // namespace danlu::arch
