// models/quantise.h: matrices in blocks. Internal to models.
#pragma once
#include "models/causal_lm_impl.h"
#include "models/weight_files.h"

namespace danlu::models {

/// Whether the parameter is one that is held in blocks; its values are then there.
bool quantise(const CausalLM::Impl& model, Parameter& parameter,
              const weights::TensorSource& source, const Quantisation& quantisation);

}  // namespace danlu::models
