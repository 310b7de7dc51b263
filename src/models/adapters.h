// models/adapters.h: adapters (LoRA, DoRA) on a model: made, read from files and written.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "layers/lora.h"
#include "models/causal_lm.h"
#include "weights/lora/peft.h"
#include "weights/tensor_source.h"

namespace danlu::models {

/// Adds adapters and freezes the base parameters. They begin as lora.start says; random numbers are
/// from `seed`. What takes a part from the base gets a fixed half that takes it away again
/// (weights::with_fixed_half): the model has these adapters then, and what it computes is at first
/// what its base does. The model has its values.
/// Errors: UsageError if a target matches nothing (lists module names). Collective.
void add_lora(CausalLM& model, const weights::PeftConfig& lora, uint64_t seed);

/// The last half of the ranks of its adapters stays as it is, as it does of adapters that took a
/// part from their base: for a run that goes on with such. REQUIRES: the model has adapters.
void fix_half_of_adapters(CausalLM& model);

/// Adds the adapters that lie at `path`, and loads them: an adapter_config.json and adapter_model
/// file of PEFT, or a MindSpeed-LLM LoRA checkpoint of this model. `lora_alpha`: needed where a
/// MindSpeed checkpoint does not record it. Errors: ModelError where they were not made for this
/// model.
void load_adapter(CausalLM& model, const std::filesystem::path& path,
                  std::optional<double> lora_alpha = {});
/// Adds and loads adapters from an open source; messages begin with `where`.
void load_adapter(CausalLM& model, const weights::PeftConfig& config,
                  const weights::TensorSource& source, const std::string& where);

/// Adapters beside a model, which itself stays as it is: passes name them for some of their rows
/// (ForwardInput::adapter_runs). Several may be there, of other ranks and targets. Any thread may
/// load one while others compute. `path`, `lora_alpha`: as load_adapter's.
/// Errors: ModelError as load_adapter's, and for modules that an adapter replaces whole
/// (modules_to_save); UsageError if the model has adapters of its own, or ranks send one another
/// rows of a pass (experts parallel, sequence parallel).
layers::AdapterSetPtr load_beside(const CausalLM& model, const std::filesystem::path& path,
                                  std::optional<double> lora_alpha = {});

/// Writes adapter_config.json and adapter_model.safetensors as PEFT does. Called as save()
/// (models/weight_files.h).
void save_adapter(const CausalLM& model, const std::filesystem::path& directory,
                  const std::string& base_model_path);

}  // namespace danlu::models
