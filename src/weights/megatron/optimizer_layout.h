// weights/megatron/optimizer_layout.h: where Megatron's optimizers keep the state of each
// parameter.
//
// Rules: docs/formats/megatron.md (Megatron-LM core_v0.8.0: optimizer/__init__.py,
// optimizer/distrib_optimizer.py, distributed/param_and_grad_buffer.py).
#pragma once
#include <vector>

#include "weights/megatron/model_layout.h"
#include "weights/torch/py_value.h"

namespace danlu::weights::megatron {

/// What decides the layout besides the model's own.
struct OptimizerShape {
  /// --use-distributed-optimizer: flat buffers in distrib_optim.pt instead of tensors by parameter.
  bool distributed = false;
  /// Parameters are F32: there are no separate master weights (plain layout only).
  bool fp32 = false;
  DType param_dtype = DType::kBF16, grad_dtype = DType::kF32;  ///< keys of the flat buffers
  /// Ranks that share gradients; with context parallel ranks they pad the buckets of flat buffers.
  int64_t data_parallel = 1, context_parallel = 1;
  bool overlap_grad_reduce = false;  ///< cuts flat buffers into buckets
};

/// What args record of the shape: distributed, gradient type, overlap, data and context parallel
/// sizes; defaults where they are silent. Errors: ModelError for sizes beyond reason.
OptimizerShape recorded_shape(const torch_file::PyValue& args, DType param_dtype);

/// Parameters that share their settings, as torch numbers them.
struct ParameterGroup {
  bool no_weight_decay = false, is_expert = false;
  std::vector<int64_t> ids;     ///< ascending, continuing from the group before
  std::vector<size_t> tensors;  ///< indices into ModelLayout::layout.tensors, beside ids
};

/// One optimizer of a rank; a rank with experts of its own (ep > 1) has a second one for them.
struct RankOptimizer {
  std::vector<ParameterGroup> groups;
  /// Distributed: one per gradient buffer, in order; indices into OptimizerLayout::layout.tensors
  /// of its param, exp_avg and exp_avg_sq. Expert ranks > 0 have none for what is no expert: the
  /// first expert rank's file holds it for all.
  struct Buffer {
    size_t param, exp_avg, exp_avg_sq;
    int64_t numel_unpadded;
  };
  std::vector<Buffer> buffers;
  /// Plain: beside the ids of all groups; SIZE_MAX for `master` with fp32 parameters.
  struct State {
    size_t master, exp_avg, exp_avg_sq;
  };
  std::vector<State> states;
};

struct OptimizerLayout {
  /// globals: master.*, exp_avg.*, exp_avg_sq.* of each of the model's globals (no master with fp32
  /// parameters in the plain layout). Files: the model's (plain) or distrib_optim.pt beside them,
  /// where a rank has buffers.
  Layout layout;
  std::vector<size_t> rank_of_file;               ///< beside layout.files: index into `ranks`
  std::vector<std::vector<RankOptimizer>> ranks;  ///< beside ModelLayout::ranks
};

/// Errors: ModelError where Megatron's own bucket arithmetic has no valid answer.
OptimizerLayout optimizer_layout(const ModelLayout& model, const OptimizerShape& shape);

/// "(torch.bfloat16, torch.float32)": the key of a flat buffer, in names of tensors.
std::string buffer_key(const OptimizerShape& shape);

}  // namespace danlu::weights::megatron
