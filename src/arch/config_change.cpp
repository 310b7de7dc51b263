#include "arch/config_change.h"

#include <utility>

#include "base/error.h"

namespace danlu::arch {
namespace {

constexpr const char* kScalingKey = "rope_scaling";
constexpr const char* kParametersKey = "rope_parameters";

/// Where the decoder's keys are: transformers has them in text_config of models that see pictures.
template <typename AnyJson>
AnyJson& keys_of_decoder(AnyJson& config_json) {
  const auto nested = config_json.find("text_config");
  const bool is_nested =
      nested != config_json.end() && nested->is_object() && nested->contains("hidden_size");
  return is_nested ? *nested : config_json;
}

/// The object under `key`; nullptr: there is none.
const Json* object_in(const Json& keys, const char* key) {
  const auto found = keys.find(key);
  return found != keys.end() && found->is_object() ? &*found : nullptr;
}

/// Errors: ModelError where each kind of layer has an object of its own.
void require_one_kind_of_positions(const Json& parameters) {
  for (const auto& [key, value] : parameters.items()) {
    if (!value.is_object()) continue;
    throw ModelError(tr("[config.json] rope_parameters has positions of its own for {}", key),
                     tr("change config.json itself"));
  }
}

/// `scaling` with what `old` says beside how far positions are stretched.
Json with_kept_keys(Json scaling, const Json& old) {
  for (const char* key : {"rope_theta", "partial_rotary_factor", "mrope_section"}) {
    if (!scaling.contains(key) && old.contains(key)) scaling[key] = old.at(key);
  }
  return scaling;
}

void change_positions(Json& keys, const PositionChange& change) {
  if (change.max_positions) keys["max_position_embeddings"] = *change.max_positions;
  const bool has_parameters = object_in(keys, kParametersKey) != nullptr;
  const Json* const old_scaling = object_in(keys, kScalingKey);
  const Json old = old_scaling ? *old_scaling : Json::object();
  // Where both are there, rope_parameters counts; transformers 4 reads the other one.
  const bool writes_scaling =
      !change.scaling.is_null() && (!has_parameters || old_scaling != nullptr);
  if (has_parameters) {
    Json& parameters = keys[kParametersKey];
    require_one_kind_of_positions(parameters);
    if (!change.scaling.is_null()) parameters = with_kept_keys(change.scaling, Json(parameters));
    if (change.theta) parameters["rope_theta"] = *change.theta;
  }
  if (change.theta && (!has_parameters || keys.contains("rope_theta")))
    keys["rope_theta"] = *change.theta;
  if (writes_scaling) keys[kScalingKey] = with_kept_keys(change.scaling, old);
}

bool asks_to_scale(const PositionChange& change) {
  const std::string type = change.scaling.is_null() ? "default" : scaling_type(change.scaling);
  return type != "default" && type != "mrope";
}

}  // namespace

Json scaling_of(const Json& config_json) {
  if (!config_json.is_object()) return Json::object();
  const Json& keys = keys_of_decoder(config_json);
  for (const char* name : {kParametersKey, kScalingKey}) {
    const Json* const found = object_in(keys, name);
    if (!found) continue;
    Json scaling = *found;
    for (const char* key : {"rope_theta", "partial_rotary_factor"}) scaling.erase(key);
    return scaling;
  }
  return Json::object();
}

std::string scaling_type(const Json& scaling) {
  for (const char* key : {"rope_type", "type"}) {
    const auto found = scaling.find(key);
    if (found != scaling.end() && found->is_string()) return found->get<std::string>();
  }
  return "default";
}

ModelConfig with_positions(const ModelConfig& config, const PositionChange& change) {
  if (change.empty()) return config;
  if (!config.rope.enabled) {
    throw ModelError(
        tr("[model config] {}: the model's positions are not rotary: nothing "
           "stretches them",
           config.family));
  }
  Json raw = config.raw;
  change_positions(keys_of_decoder(raw), change);
  const std::string where = change.scaling.is_null()
                                ? tr("config.json with other positions")
                                : tr("config.json with rope_scaling {}", dump_text(change.scaling));
  const ModelConfig read = parse_model_config(raw, where, Heads::kAny);
  if (asks_to_scale(change) && read.rope.scaling == RopeScaling::kNone) {
    throw ModelError(
        tr("[model config] {}: models of this family do not read rope_scaling", config.family));
  }
  ModelConfig changed = config;
  changed.rope = read.rope;
  changed.rope.is_pairwise = config.rope.is_pairwise;
  changed.window_rope = read.window_rope;
  changed.attention_scale = read.attention_scale;
  changed.max_positions = read.max_positions;
  changed.raw = std::move(raw);
  return changed;
}

ModelConfig with_vocabulary(const ModelConfig& config, int64_t rows) {
  if (rows == config.vocab_size) return config;
  ModelConfig changed = config;
  Json& keys = keys_of_decoder(changed.raw);
  const bool is_nested = &keys != &changed.raw;
  // ChatGLM's is padded_vocab_size.
  keys[keys.contains("padded_vocab_size") ? "padded_vocab_size" : "vocab_size"] = rows;
  if (is_nested && changed.raw.contains("vocab_size")) changed.raw["vocab_size"] = rows;
  changed.vocab_size =
      parse_model_config(changed.raw, tr("config.json with {} tokens", rows), Heads::kAny)
          .vocab_size;
  if (changed.vocab_size == rows) return changed;
  throw ModelError(tr("[model config] {}: the vocabulary of models of this family does not grow",
                      config.family));
}

}  // namespace danlu::arch
