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
  throw ModelError(
      tr("[config.json] rope scaling must be default, linear, dynamic, llama3 or yarn, got \"{}\"",
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

void read_scaling(const ConfigReader& scaling, int64_t max_positions, bool has_three_axes,
                  RopeConfig& rope) {
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
  rope.original_max_positions =
      scaling.size_or("original_max_position_embeddings", max_positions, kMaxPositions);
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
    if (rope.low_freq_factor <= 0 || rope.high_freq_factor <= rope.low_freq_factor) {
      throw ModelError(
          tr("[config.json] llama3 rope scaling needs 0 < low_freq_factor < "
             "high_freq_factor, got {} and {}",
             rope.low_freq_factor, rope.high_freq_factor));
    }
  }
  if (rope.scaling == RopeScaling::kYarn) {
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
}

}  // namespace

RopeConfig parse_rope(const ConfigReader& config, double default_theta, int64_t max_positions,
                      bool has_three_axes) {
  RopeConfig rope;
  rope.theta = config.number_or("rope_theta", default_theta);
  if (const Json* parameters = config.value("rope_parameters")) {
    const ConfigReader reader(*parameters, "rope_parameters.");
    rope.theta = reader.number_or("rope_theta", rope.theta);
    if (const double rotary = reader.number_or("partial_rotary_factor", 1.0); rotary != 1.0) {
      throw ModelError(tr("[config.json] partial_rotary_factor must be 1, got {}", rotary));
    }
    if (reader.has("rope_type") || reader.has("type"))
      read_scaling(reader, max_positions, has_three_axes, rope);
  } else if (const Json* scaling = config.value("rope_scaling")) {
    read_scaling(ConfigReader(*scaling, "rope_scaling."), max_positions, has_three_axes, rope);
  }
  if (rope.theta <= 0) {
    throw ModelError(tr("[config.json] rope_theta must be positive, got {}", rope.theta));
  }
  return rope;
}

}  // namespace danlu::arch
