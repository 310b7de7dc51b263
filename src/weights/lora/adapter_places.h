// weights/lora/adapter_places.h: which modules of a model an adapter sits on, of which shape its
// tensors are there, and what can be merged or computed with: for options, training and merging.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "arch/model_config.h"
#include "weights/lora/peft.h"
#include "weights/tensor_source.h"

namespace danlu::weights {

/// The weight of every module, by the module's name. Biases are not among them.
std::map<std::string, arch::ParamSpec> module_weights(const arch::ModelConfig& config);

/// Whether target_modules choose the module of `weight`: peft_targets, told what the module is.
bool is_chosen(const PeftConfig& peft, const arch::ParamSpec& weight);

/// Whether PEFT adapts that module wherever it can. Not routers: they are linear layers in some
/// versions of the model code and bare parameters in others. Nor the head of a reward model, which
/// is trained whole.
bool must_be_adapted(const PeftConfig& peft, const arch::ParamSpec& weight);

/// The modules that must_be_adapted, in model order.
std::vector<std::string> chosen_modules(const PeftConfig& peft, const arch::ModelConfig& config);

/// What "all-linear" chooses, in model order: not the head. For a model with a vision tower this
/// includes what keep_out_of_tower would leave out.
std::vector<std::string> linear_modules(const arch::ModelConfig& config);

/// Targets as people mean them on a model with a vision tower: "all-linear", and names that modules
/// of the decoder have, choose the decoder's modules only. What names the tower's alone ("qkv",
/// "visual.merger.mlp.0") and regular expressions choose as PEFT lets them. Says so in
/// exclude_modules, where PEFT finds it; nothing else changes, nor does anything of other models.
void keep_out_of_tower(PeftConfig& peft, const arch::ModelConfig& config);

/// Whether an adapter, under the hub's names, has LoRA's parts in a vision tower.
bool has_tower_adapters(const TensorSource& adapter);

/// Targets that, alone and without exclusions, choose no module. Errors: PatternError.
std::vector<std::string> idle_targets(const PeftConfig& peft, const arch::ModelConfig& config);

/// Why an adapter that `peft` describes cannot be where `weight` is; empty where it can.
struct AdapterLimits {
  std::string merging;    ///< added to the weight in files
  std::string computing;  ///< beside the weight of a model that computes
};
AdapterLimits limits_at(const PeftConfig& peft, const arch::ModelConfig& config,
                        const arch::ParamSpec& weight);

/// The shape of an adapter's tensor for the module of `weight`: [rank, in], [out, rank], [out] or
/// the weight's own. An embedding is a linear layer from the vocabulary, stored the other way
/// round. Empty where such a part has no place, and for biases.
std::vector<int64_t> adapter_shape(const arch::ParamSpec& weight, AdapterPart part, int64_t rank);

/// Whether an entry of modules_to_save names this module or one that holds it.
bool is_within(const std::string& module, const std::string& entry);

/// The module of the model that an adapter's tensor is for: PEFT calls an adapted layer's own
/// weight and bias, which it stores beside some adapters, "X.base_layer".
std::string base_module(const AdapterTensorName& name);

}  // namespace danlu::weights
