// models/value_head.h: the head of a reward model that files have beside the model. Internal to
// models.
#pragma once
#include <filesystem>
#include <vector>

#include "models/causal_lm_impl.h"

namespace danlu::models {

/// Takes the parameters of a head of the form arch::ScoreForm::kBeside out of `parameters`, a
/// model's or its adapters', and writes them into a file of their own, in f32 as TRL has them.
/// Nothing of other models. Collective as save().
void write_beside(const CausalLM::Impl& model, const std::filesystem::path& directory,
                  std::vector<Parameter>& parameters);

}  // namespace danlu::models
