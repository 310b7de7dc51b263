// arch/learned_positions.h: models that add a learned row for its position to each token's
// embedding.
#pragma once
#include "arch/model_config.h"

namespace danlu::arch {

/// Rows of the table of position embeddings (Role::kPositions): the longest text the model can see,
/// and in encoders the rows before a text's first; 0: its positions are rotary or ALiBi's.
inline int64_t learned_positions(const ModelConfig& config) {
  if (config.rope.enabled || config.alibi) return 0;
  return config.max_positions + (config.encoder ? config.encoder->first_position : 0);
}

/// A matrix of which rows are looked up: no linear layer, unless a head is tied to it.
inline bool is_table(const ParamSpec& spec) {
  return spec.role == Role::kEmbedding || spec.role == Role::kPositions ||
         spec.role == Role::kTokenTypes;
}

}  // namespace danlu::arch
