// weights/convert/optimizer_state.h: Adam's state beside a model's weights, as more global tensors.
#pragma once
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "weights/tensor_source.h"

namespace danlu::weights {

/// Prefixes of the state of a parameter: "exp_avg.model.norm.weight", all F32 and of its shape.
/// "master" is the F32 weight of a parameter that is stored in fewer bits.
inline constexpr std::array kStatePrefixes = {"master.", "exp_avg.", "exp_avg_sq."};

/// What is one number for many parameters. Keys of `groups` are Megatron's: wd_mult, lr_mult,
/// is_expert_parallel, is_decoupled_lr, lr, betas, eps, weight_decay, step, max_lr, min_lr, ….
struct OptimizerSettings {
  Json groups = Json::array();
  Json scheduler = Json::object();  ///< opt_param_scheduler
  Json grad_scaler = nullptr;       ///< null: there is none
  int64_t iteration = 0;
  int64_t consumed_train_samples = 0;
};

/// An optimizer's state: tensors (kStatePrefixes + a parameter's HF name) and settings.
struct OptimizerState {
  std::shared_ptr<const TensorSource> tensors;  ///< nullptr: there is none
  OptimizerSettings settings = {};
  bool has_master = false;
};

}  // namespace danlu::weights
