// arch/embedding_noise.h: where noise on token embeddings goes (NEFTune).
#pragma once
#include "arch/model_config.h"

namespace danlu::arch {

/// Whether it comes behind the factor of embeddings. Hugging Face's hook adds it to what the
/// embedding module gives, and the module of Gemma 3 multiplies by the factor itself.
bool embedding_noise_is_last(const ModelConfig& config);

}  // namespace danlu::arch
