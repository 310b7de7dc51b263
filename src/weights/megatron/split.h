// weights/megatron/split.h: over which ranks a Megatron checkpoint is cut, and which layer stands
// where.
//
// Rules: Megatron-LM core_v0.8.0 (training/checkpointing.py, core/transformer) and MindSpeed-LLM
// v2.0.0 (custom layer lists, no-op layers); docs/formats/megatron.md.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "arch/model_config.h"
#include "arch/placement.h"

namespace danlu::weights::megatron {

struct Split {
  int64_t tp = 1, pp = 1, ep = 1;
  /// --num-layers-per-virtual-pipeline-stage; 0: no virtual stages.
  int64_t layers_per_virtual_stage = 0;
  std::vector<int64_t> layer_list = {};   ///< --num-layer-list: slots of each stage; empty: equal
  std::vector<int64_t> noop_layers = {};  ///< --noop-layers: global slots without tensors
  /// MindSpeed-MM's lists of layers and of a vision tower's blocks, [chunk][stage]
  /// (arch::PipelineLayers), in place of the settings above.
  std::vector<std::vector<int64_t>> chunk_list = {}, block_list = {};
  /// --moe-tp-extend-ep: experts are dealt over the tensor axis too, by default whole.
  bool tp_extends_ep = false;
  /// The same by Megatron's own --expert-tensor-parallel-size. Names of folders and args then count
  /// the dealers too, but `ep` here is still the number without the tensor axis.
  bool counts_tensor_ranks = false;
  /// Neighbours of the tensor axis that cut each expert which one of its dealers has; divides tp.
  /// REQUIRES: 1 but with counts_tensor_ranks.
  int64_t expert_tp = 1;
  /// --make-vocab-size-divisible-by: the padded vocabulary is a multiple of this times tp.
  int64_t vocab_divisor = 1;

  arch::PipelineLayers pipeline() const;
  /// How many runs of neighbours on the tensor axis have experts of their own.
  int64_t expert_dealers() const { return tp_extends_ep ? tp / expert_tp : 1; }
  bool operator==(const Split&) const = default;
};

/// Errors: UsageError that names the valid sizes. tp must divide KV groups, FFN widths, and a
/// vision tower's heads and widths. ep times the dealers must divide the experts, and the ranks
/// that cut each their widths. Layers: as arch::place_layers. The vocabulary may get 65,536 rows of
/// padding; more only up to 16 times the vocabulary, and never above a million.
void check_split(const arch::ModelConfig& config, const Split& split);

/// Rows of the embedding over all ranks.
int64_t padded_vocab(int64_t vocab_size, const Split& split);

/// "mp_rank_01_003": the tensor rank, then the pipeline rank if pp > 1, then the expert rank if
/// ep > 1 or counts_tensor_ranks.
std::string rank_directory(const Split& split, int64_t tp_rank, int64_t pp_rank, int64_t ep_rank);

/// "TP2 PP4 (11,13,19,21 layers) EP2", for people.
std::string describe(const Split& split);

}  // namespace danlu::weights::megatron
