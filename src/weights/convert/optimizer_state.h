// weights/convert/optimizer_state.h: Adam's state beside a model's weights, as more global tensors.
#pragma once
#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "weights/tensor_source.h"

namespace danlu::weights {

/// Prefixes of the state of a parameter: "exp_avg.model.norm.weight", all F32 and of its shape.
/// "master" is the F32 weight of a parameter that is stored in fewer bits.
inline constexpr std::array kStatePrefixes = {"master.", "exp_avg.", "exp_avg_sq."};

/// Prefixes of other optimizers than Adam (settings::StateRule), which no other format has.
inline constexpr std::array kOtherStatePrefixes = {
    "momentum.",   "low_projection.", "low_projection_left.", "low_avg.",
    "low_avg_sq.", "low_norm.",       "block_avg_sq."};

/// Whether a tensor in a training checkpoint's folder of the optimizer is of its state.
inline bool is_state(std::string_view name) {
  const auto begins = [name](const char* prefix) { return name.starts_with(prefix); };
  return std::any_of(kStatePrefixes.begin(), kStatePrefixes.end(), begins) ||
         std::any_of(kOtherStatePrefixes.begin(), kOtherStatePrefixes.end(), begins);
}

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
