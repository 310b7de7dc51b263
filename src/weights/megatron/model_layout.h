// weights/megatron/model_layout.h: a model's parameters as the ranks of a Megatron job hold them.
//
// Layout rules: docs/formats/megatron.md (Megatron-LM core_v0.8.0, MindSpeed-LLM v2.0.0).
#pragma once
#include <string>
#include <vector>

#include "arch/model_config.h"
#include "weights/layout.h"
#include "weights/megatron/names.h"
#include "weights/megatron/split.h"

namespace danlu::weights::megatron {

/// A parameter on one rank, beyond where its numbers lie.
struct ParameterTraits {
  std::string key;         ///< in the chunk's state dict: "decoder.layers.0.mlp.linear_fc1.weight"
  bool is_expert = false;  ///< of a routed expert
  bool is_shared_embedding = false;  ///< one of the two ends of a tied embedding, pp > 1
};

/// One model chunk: "model", or "model0", "model1", … of virtual stages.
struct Chunk {
  std::string key;
  std::vector<size_t> tensors;  ///< indices into ModelLayout::layout.tensors, as registered
};

/// What one model_optim_rng.pt holds.
struct Rank {
  int64_t tp = 0, pp = 0, ep = 0;
  std::string directory;  ///< "mp_rank_00_001"
  std::vector<Chunk> chunks;
};

struct ModelLayout {
  /// Files are "<rank directory>/model_optim_rng.pt", one per entry of `ranks`, in their order;
  /// tensor names are those open_torch_file gives: "model.decoder.layers.0…".
  Layout layout;
  std::vector<ParameterTraits> traits;  ///< beside layout.tensors
  std::vector<Rank> ranks;
  bool splits_experts = false;  ///< experts have an optimizer of their own
};

/// The untied parameters of a model as global tensors of one dtype, in model order, under HF names.
std::vector<TensorInfo> global_tensors(const arch::ModelConfig& config, DType dtype);

/// `globals`: as global_tensors names them; their dtypes are what is stored.
/// Errors: UsageError as check_split, and for MindSpeed-MM as arch::stages_of; ModelError where a
/// dialect has no such model (legacy with experts, a vision tower outside MindSpeed-MM).
ModelLayout model_layout(const arch::ModelConfig& config, const Split& split, const Form& form,
                         std::vector<TensorInfo> globals);

inline constexpr const char* kModelFile = "model_optim_rng.pt";
inline constexpr const char* kOptimizerFile = "distrib_optim.pt";

}  // namespace danlu::weights::megatron
