// models/nf4_weights.h: matrices of a model that is trained or only answers, in NF4. Internal to
// models.
#pragma once
#include "models/causal_lm_impl.h"
#include "models/weight_files.h"

namespace danlu::models {

/// Gives parameters that are to be held in NF4 their layouts, and no memory: those that `source`
/// holds so, where it is to keep them, and those that are to be made so. `source`: nullptr of a
/// model from a seed. Before the model's parameters get memory.
void choose_nf4(CausalLM::Impl& model, const weights::TensorSource* source,
                const Quantisation& quantisation);

/// Whether the parameter is held in NF4; its values are then there, bit for bit those of `source`,
/// or made from all of it, so that they do not depend on the mesh.
bool fill_nf4(Parameter& parameter, const weights::TensorSource& source);
/// The same from the whole matrix on the host.
bool fill_nf4(Parameter& parameter, const at::Tensor& whole_OI);

}  // namespace danlu::models
