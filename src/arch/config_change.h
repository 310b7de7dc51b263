// arch/config_change.h: models that differ from their config.json: in how positions are stretched,
// and in how many tokens there are.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "arch/model_config.h"
#include "base/json.h"

namespace danlu::arch {

/// What takes the place of config.json's words on positions. Nothing set: it stays as it is.
struct PositionChange {
  /// rope_scaling as config.json has it, with its factor; null: the model's own.
  Json scaling = nullptr;
  std::optional<double> theta = {};           ///< rope_theta
  std::optional<int64_t> max_positions = {};  ///< max_position_embeddings, in tokens
  bool empty() const { return scaling.is_null() && !theta && !max_positions; }
};

/// rope_scaling of a config.json, or what of transformers 5's rope_parameters scales; an empty
/// object where there is neither.
Json scaling_of(const Json& config_json);

/// "yarn" of {"rope_type": "yarn"} or {"type": "yarn"}; "default" where neither is a text.
std::string scaling_type(const Json& scaling);

/// The model with other positions: its rope, max_positions and raw differ, nothing else does. What
/// config.json says of sections of positions (mrope_section) stays.
/// Errors: ModelError where the family has no rotary positions or does not scale them, where kinds
/// of layers have positions of their own, and as parse_model_config.
ModelConfig with_positions(const ModelConfig& config, const PositionChange& change);

/// The model with a vocabulary of `rows`: its vocab_size and raw differ.
/// Errors: ModelError where its config.json says the number otherwise.
ModelConfig with_vocabulary(const ModelConfig& config, int64_t rows);

}  // namespace danlu::arch
