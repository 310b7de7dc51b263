// weights/megatron/lora_target.h: a PEFT adapter in the form of MindSpeed-LLM's LoRA, for writing.
//
// There a fused matrix has one A, and all modules have one rank and one alpha. An adapter with an A
// for each part is put into that form without changing what it computes: the common A is the stack
// of theirs, and each part's B is zero in the columns of the others'. A key of our own in `args`
// says which adapter it was, for taking it apart again; who trains on from the files leaves it out.
// Source: docs/formats/megatron.md.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "weights/lora/peft.h"
#include "weights/megatron/model_layout.h"
#include "weights/torch/py_value.h"

namespace danlu::weights::megatron {

struct FusedAdapters {
  /// Under PEFT's names: lora_A [rank, in], the same for all parts of a fused matrix, and lora_B
  /// [out, rank]. Lazy views.
  std::shared_ptr<const TensorSource> tensors;
  int64_t rank = 0;
  double alpha = 0;                  ///< alpha / rank is the adapter's scale
  std::vector<std::string> modules;  ///< Megatron's names, sorted: "linear_fc1", "linear_qkv", …
  torch_file::PyValue record;        ///< of `args`, under kFusedFrom; None: it is not needed
};

/// In `args`: what the adapter was that was fused.
inline constexpr const char* kFusedFrom = "danlu_lora";

/// `model`: the layout of the adapter's base.
/// Errors: ModelError naming what the form cannot hold: DoRA, adapters on embeddings, biases,
/// modules saved whole, experts of a GroupedMLP, modules of different scales or types.
FusedAdapters fuse_adapters(const ModelLayout& model, std::shared_ptr<const TensorSource> adapter,
                            const PeftConfig& peft);

/// The adapter that was fused, from what was written. `fused`: under PEFT's names, as lora_layout
/// reads them; `record`: of kFusedFrom; `where` begins messages. Errors: ModelError for a record
/// that does not fit.
struct UnfusedAdapters {
  std::shared_ptr<const TensorSource> tensors;
  PeftConfig peft;
};
UnfusedAdapters unfuse_adapters(const ModelLayout& model, std::shared_ptr<const TensorSource> fused,
                                const torch_file::PyValue& record, const std::string& where);

/// Adds them to `model`, whose adapted matrices become "X.base_layer.weight"; `alone`: they are all
/// that is left of it.
void add_adapters(const FusedAdapters& adapters, bool alone, ModelLayout& model);

}  // namespace danlu::weights::megatron
