// The spellings of rotary scaling: rope_scaling {type|rope_type}, and transformers v5's
// rope_parameters.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "arch/decoder.h"
#include "base/error.h"

namespace danlu::arch {
namespace {

double required_number(const ConfigReader& scaling, std::string_view key, std::string_view kind) {
  const auto number = scaling.number(key);
  if (!number) {
    throw ModelError(tr("[config.json] rope scaling \"{}\" needs the key {}", kind, key));
  }
  return *number;
}

RopeScaling scaling_kind(const std::string& name) {
  if (name == "default") return RopeScaling::kNone;
  if (name == "linear") return RopeScaling::kLinear;
  if (name == "dynamic") return RopeScaling::kDynamic;
  if (name == "llama3") return RopeScaling::kLlama3;
  if (name == "yarn") return RopeScaling::kYarn;
  if (name == "longrope" || name == "su") return RopeScaling::kLongRope;
  throw ModelError(
      tr("[config.json] rope scaling must be default, linear, dynamic, llama3, yarn or longrope, "
         "got \"{}\"",
         name));
}

std::vector<int64_t> read_sections(const ConfigReader& scaling) {
  const std::vector<int64_t> sections = scaling.integers("mrope_section");
  const bool fits = sections.size() == 3 && std::all_of(sections.begin(), sections.end(),
                                                        [](int64_t pairs) { return pairs > 0; });
  if (!fits) {
    throw ModelError(
        tr("[config.json] mrope_section must be three counts, of time, height and width; got [{}]",
           fmt::join(sections, ", ")));
  }
  return sections;
}

/// A divisor for each pair that is rotated.
std::vector<double> read_divisors(const ConfigReader& scaling, std::string_view key,
                                  int64_t pairs) {
  const Json* list = scaling.value(key);
  std::vector<double> divisors;
  if (list && list->is_array()) {
    for (const Json& item : *list) {
      if (item.is_number() && item.get<double>() > 0) divisors.push_back(item.get<double>());
    }
  }
  if (!list || static_cast<int64_t>(divisors.size()) != pairs ||
      static_cast<int64_t>(list->size()) != pairs) {
    throw ModelError(
        tr("[config.json] rope scaling \"longrope\" needs {} positive numbers in {}, one for each "
           "pair of a head, got {}",
           pairs, key, list && list->is_array() ? std::to_string(list->size()) : tr("none")));
  }
  return divisors;
}

void read_longrope(const ConfigReader& scaling, const ModelConfig& model, RopeConfig& rope) {
  const int64_t pairs = (rope.rotated_dims > 0 ? rope.rotated_dims : model.head_dim) / 2;
  rope.short_factors = read_divisors(scaling, "short_factor", pairs);
  rope.long_factors = read_divisors(scaling, "long_factor", pairs);
  rope.short_mscale = scaling.number("short_mscale");
  rope.long_mscale = scaling.number("long_mscale");
  rope.attention_factor = scaling.number("attention_factor");
  // Phi-3 has it outside of the scaling.
  const int64_t outside =
      ConfigReader(model.raw).size_or("original_max_position_embeddings", 0, kMaxPositions);
  rope.original_max_positions =
      scaling.size_or("original_max_position_embeddings", outside, kMaxPositions);
  if (rope.original_max_positions > 0) {
    rope.factor =
        static_cast<double>(model.max_positions) / static_cast<double>(rope.original_max_positions);
    return;
  }
  // Without it the short divisors serve every length.
  rope.original_max_positions = model.max_positions;
  rope.factor = scaling.number_or("factor", 1.0);
}

void read_yarn(const ConfigReader& scaling, RopeConfig& rope) {
  rope.beta_fast = scaling.number_or("beta_fast", 32.0);
  rope.beta_slow = scaling.number_or("beta_slow", 1.0);
  rope.attention_factor = scaling.number("attention_factor");
  rope.mscale = scaling.number("mscale");
  rope.mscale_all_dim = scaling.number("mscale_all_dim");
  if (rope.beta_slow <= 0 || rope.beta_fast < rope.beta_slow) {
    throw ModelError(tr("[config.json] yarn needs 0 < beta_slow <= beta_fast, got {} and {}",
                        rope.beta_slow, rope.beta_fast));
  }
  if (!scaling.boolean_or("truncate", true)) {
    throw ModelError(tr("[config.json] yarn with truncate=false is not supported"));
  }
}

void read_scaling(const ConfigReader& scaling, const ModelConfig& model, bool has_three_axes,
                  RopeConfig& rope) {
  const int64_t max_positions = model.max_positions;
  const auto type = scaling.text(scaling.has("rope_type") ? "rope_type" : "type");
  if (!type) throw ModelError(tr("[config.json] rope_scaling has neither rope_type nor type"));
  // transformers writes "default" over the "mrope" that it has read.
  const bool is_mrope = has_three_axes && *type == "mrope";
  rope.scaling = is_mrope ? RopeScaling::kNone : scaling_kind(*type);
  if (is_mrope || scaling.has("mrope_section")) {
    if (!has_three_axes) {
      throw ModelError(tr("[config.json] mrope_section is for models that see pictures"));
    }
    rope.mrope_section = read_sections(scaling);
  }
  if (rope.scaling == RopeScaling::kNone) return;
  if (rope.scaling == RopeScaling::kLongRope) return read_longrope(scaling, model, rope);
  // transformers scales "dynamic" beyond max_position_embeddings, whatever else is said.
  rope.original_max_positions =
      rope.scaling == RopeScaling::kDynamic
          ? max_positions
          : scaling.size_or("original_max_position_embeddings", max_positions, kMaxPositions);
  if (rope.scaling == RopeScaling::kYarn && !scaling.has("factor") &&
      rope.original_max_positions > 0) {
    // DeepSeek-style files give only the two lengths.
    rope.factor =
        static_cast<double>(max_positions) / static_cast<double>(rope.original_max_positions);
  } else {
    rope.factor = required_number(scaling, "factor", *type);
  }
  if (rope.factor < 1.0) {
    throw ModelError(
        tr("[config.json] rope scaling factor must be at least 1, got {}", rope.factor));
  }
  if (rope.scaling != RopeScaling::kLinear && rope.original_max_positions == 0) {
    throw ModelError(
        tr("[config.json] rope scaling \"{}\" needs original_max_position_embeddings or "
           "max_position_embeddings",
           *type));
  }
  if (rope.scaling == RopeScaling::kLlama3) {
    rope.low_freq_factor = required_number(scaling, "low_freq_factor", *type);
    rope.high_freq_factor = required_number(scaling, "high_freq_factor", *type);
    if (rope.low_freq_factor <= 0 || rope.high_freq_factor < rope.low_freq_factor) {
      throw ModelError(
          tr("[config.json] llama3 rope scaling needs 0 < low_freq_factor <= "
             "high_freq_factor, got {} and {}",
             rope.low_freq_factor, rope.high_freq_factor));
    }
  }
  if (rope.scaling == RopeScaling::kYarn) read_yarn(scaling, rope);
}

}  // namespace

namespace {

/// 0: all. Errors: ModelError for a part that the family does not know, and one of an odd number.
int64_t rotated_dims(const ConfigReader& config, int64_t head_dim,
                     const DecoderDefaults& defaults) {
  const bool is_known = defaults.partial_rotary > 0;
  const double part =
      config.number_or("partial_rotary_factor", is_known ? defaults.partial_rotary : 1.0);
  if (!is_known && part != 1.0) {
    throw ModelError(tr("[config.json] partial_rotary_factor must be 1, got {}", part));
  }
  if (part == 1.0) return 0;
  const auto dims = static_cast<int64_t>(static_cast<double>(head_dim) * part);
  if (part <= 0 || part > 1 || dims < 2 || dims % 2 != 0) {
    throw ModelError(
        tr("[config.json] partial_rotary_factor={} of head_dim={} must be an even number from 2 on",
           part, head_dim));
  }
  return dims;
}

/// theta and the scaling that `scaling` has, if any.
void complete_rope(const ConfigReader* scaling, const ModelConfig& model,
                   const DecoderDefaults& defaults, RopeConfig& rope) {
  if (scaling) read_scaling(*scaling, model, defaults.has_three_axes, rope);
  if (rope.theta <= 0) {
    throw ModelError(tr("[config.json] rope_theta must be positive, got {}", rope.theta));
  }
}

}  // namespace

RopeConfig parse_rope_parameters(const ConfigReader& parameters, const ModelConfig& model,
                                 const DecoderDefaults& defaults) {
  RopeConfig rope;
  rope.theta = parameters.number_or("rope_theta", defaults.rope_theta);
  rope.rotated_dims = rotated_dims(parameters, model.head_dim, defaults);
  const bool scales = parameters.has("rope_type") || parameters.has("type");
  complete_rope(scales ? &parameters : nullptr, model, defaults, rope);
  return rope;
}

RopeConfig parse_rope(const ConfigReader& config, const ModelConfig& model,
                      const DecoderDefaults& given) {
  DecoderDefaults defaults = given;
  defaults.rope_theta = config.number_or("rope_theta", given.rope_theta);
  RopeConfig rope;
  rope.theta = defaults.rope_theta;
  rope.rotated_dims = rotated_dims(config, model.head_dim, defaults);
  if (given.partial_rotary > 0)
    defaults.partial_rotary = config.number_or("partial_rotary_factor", given.partial_rotary);
  if (const Json* parameters = config.value("rope_parameters"))
    return parse_rope_parameters(ConfigReader(*parameters, "rope_parameters."), model, defaults);
  const Json* scaling = config.value("rope_scaling");
  if (!scaling) {
    complete_rope(nullptr, model, defaults, rope);
    return rope;
  }
  const ConfigReader reader(*scaling, "rope_scaling.");
  complete_rope(&reader, model, defaults, rope);
  return rope;
}

}  // namespace danlu::arch
