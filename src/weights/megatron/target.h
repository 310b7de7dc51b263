// weights/megatron/target.h: planning a Megatron checkpoint that Megatron-LM and MindSpeed-LLM
// load.
#pragma once
#include <optional>

#include "weights/convert/optimizer_state.h"
#include "weights/convert/target.h"
#include "weights/megatron/lora_target.h"
#include "weights/megatron/model_layout.h"
#include "weights/megatron/optimizer_layout.h"
#include "weights/torch/py_value.h"

namespace danlu::weights::megatron {

struct TargetOptions {
  Split split = {};
  Form form = {};
  std::optional<int64_t> iteration = 1;  ///< empty: release
  /// args of the Megatron checkpoint this one is made from; None: they are made anew.
  torch_file::PyValue args = {};
  /// Written beside the weights if it has tensors; `optimizer_shape` says how.
  const OptimizerState* optimizer = nullptr;
  OptimizerShape optimizer_shape = {};
  /// In the form of MindSpeed-LLM's LoRA, beside the weights or, `adapters_alone`, without them
  /// (--lora-ckpt-filter). Not together with `optimizer`.
  const FusedAdapters* adapters = nullptr;
  bool adapters_alone = false;
};

/// The files of every rank and the tracker. Global tensors: the model's, then the optimizer's
/// (kStatePrefixes), under their names in `globals` and OptimizerState::tensors, or the adapters'.
/// `globals`: the model's tensors in the dtypes to store. Errors: as model_layout,
/// optimizer_layout.
Target plan_checkpoint(const arch::ModelConfig& config, std::vector<TensorInfo> globals,
                       const TargetOptions& options);

}  // namespace danlu::weights::megatron
