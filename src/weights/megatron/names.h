// weights/megatron/names.h: what Megatron's dialects call the parts of a decoder, and of a vision
// tower.
#pragma once
#include <string>

namespace danlu::weights::megatron {

/// Which module classes wrote the checkpoint.
enum class Dialect {
  kCore,               ///< Megatron-core, local spec (MindSpeed-LLM's default)
  kTransformerEngine,  ///< Megatron-core with fused Transformer-Engine modules
  kLegacy,             ///< before Megatron-core: nested state dicts
  kMindSpeedMm,        ///< MindSpeed-MM: a decoder of Megatron-core after a vision tower
};

/// How a mixture-of-experts layer keeps its experts.
enum class ExpertForm {
  kSequential,  ///< SequentialMLP: one pair of matrices per expert
  kGrouped,     ///< GroupedMLP (--moe-grouped-gemm): all experts in two transposed matrices
  kTeGrouped,   ///< TEGroupedMLP: weight0, weight1, … beside each other
};

/// How latent attention's matrices are called and put together.
enum class LatentForm {
  kMindSpeed,  ///< linear_qkv (both that read the hidden state, whole on each rank), linear_qb, …
  kMindSpeedSplit,  ///< --mla-mm-split: of linear_qb and linear_kvb the rotated rows, and values,
                    ///< apart
  kMegatron,  ///< linear_q_down_proj, linear_q_up_proj, linear_kv_down_proj, … (Megatron 0.9 on)
};

/// How the checkpoint's tensors are called and laid out, apart from the split.
struct Form {
  Dialect dialect = Dialect::kCore;
  ExpertForm experts = ExpertForm::kSequential;
  LatentForm latent = LatentForm::kMindSpeed;  ///< of kCore; kTransformerEngine: always Megatron's
  /// Layers that predict further ahead hold copies of the table and of the head, as MindSpeed's do
  /// unless told to share them. Megatron's hold none.
  bool prediction_tables = true, prediction_heads = true;
  bool operator==(const Form&) const = default;
};

/// Whether modules that MindSpeed-LLM has in a form of its own, latent attention and layers that
/// predict further ahead, are Megatron's.
bool has_megatrons_modules(const Form& form);

/// Names below the state dict, without ".weight"/".bias".
struct Names {
  std::string embedding, positions, embedding_norm, layer /* "<layer><index>." */, final_norm, head,
      tied_head;
  std::string attention_norm, qkv, o, q_norm, k_norm, mlp_norm, fc1, fc2;
  /// MindSpeed-LLM's, registered after all else of a layer; empty: the dialect has none.
  std::string post_attention_norm, post_mlp_norm;
  bool norms_in_linears;  ///< Transformer-Engine: norm weights belong to the matrix after them
  bool o_before_qkv;      ///< order of registration, which numbers the optimizer's parameters
};
const Names& names_of(Dialect dialect);

/// The names of the tower in kMindSpeedMm. In blocks the parts are called as in layers (Names).
struct TowerNames {
  std::string patches, block /* "<block><index>." */, merger_norm, merger_fc1, merger_fc2;
};
const TowerNames& tower_names();

const char* describe(Dialect dialect);

}  // namespace danlu::weights::megatron
