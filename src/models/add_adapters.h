// models/add_adapters.h: adapters' places on a model, before their values. Internal to models.
#pragma once
#include "models/adapters.h"
#include "models/causal_lm_impl.h"

namespace danlu::models {

/// Does what add_lora does. from_file: as in PEFT, targets that this model lacks are passed over
/// while one is found.
void add_adapters(CausalLM::Impl& model, const weights::PeftConfig& config, uint64_t seed,
                  bool from_file);

/// The same beside the model. Errors: as add_lora's of files; ModelError for modules_to_save.
layers::AdapterSet make_beside(const CausalLM::Impl& model, const weights::PeftConfig& config);

}  // namespace danlu::models
