// arch/learned_positions.h: models that add a learned row for its position to each token's
// embedding.
#pragma once
#include "arch/model_config.h"

namespace danlu::arch {

/// Rows of the table of position embeddings (Role::kPositions), the longest text the model can
/// see; 0: its positions are rotary or ALiBi's.
inline int64_t learned_positions(const ModelConfig& config) {
  return config.rope.enabled || config.alibi ? 0 : config.max_positions;
}

/// A matrix of which rows are looked up: no linear layer, unless a head is tied to it.
inline bool is_table(const ParamSpec& spec) {
  return spec.role == Role::kEmbedding || spec.role == Role::kPositions;
}

}  // namespace danlu::arch
