#include <fmt/format.h>

#include <limits>

#include "arch/model_config.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "infer/generate.h"

namespace danlu::infer {
namespace {

template <typename Number>
std::optional<Number> read(const Json& json, const char* key, bool right_kind, const char* kind,
                           const fs::path& file) {
  const auto value = json.find(key);
  if (value == json.end() || value->is_null()) return std::nullopt;
  if (right_kind) return value->get<Number>();
  throw ModelError(tr("{}: {} must be {}, got {}", file.string(), key, kind,
                      value->dump(-1, ' ', false, Json::error_handler_t::replace)));
}

/// Typed access that names file and key. null counts as missing, as HF writes it.
class Fields {
 public:
  Fields(const Json& json, const fs::path& file) : json_(json), file_(file) {}
  double number(const char* key, double fallback) const {
    return read<double>(json_, key, at(key).is_number(), "a number", file_).value_or(fallback);
  }
  std::optional<int64_t> integer(const char* key) const {
    return read<int64_t>(json_, key, at(key).is_number_integer(), "a whole number", file_);
  }
  bool boolean(const char* key) const {
    return read<bool>(json_, key, at(key).is_boolean(), "true or false", file_).value_or(false);
  }

 private:
  const Json& at(const char* key) const {
    static const Json nothing;
    const auto value = json_.find(key);
    return value == json_.end() ? nothing : *value;
  }
  const Json& json_;
  const fs::path& file_;
};

/// Keys of HF's GenerationConfig that change answers and that Danlu does not have, with the value
/// at which they do nothing. null does nothing for any of them.
const std::vector<std::pair<const char*, Json>>& keys_not_built() {
  static const std::vector<std::pair<const char*, Json>> kKeys = {
      {"min_length", 0},
      {"min_new_tokens", 0},
      {"max_time", nullptr},
      {"stop_strings", nullptr},
      {"num_beam_groups", 1},
      {"diversity_penalty", 0.0},
      {"penalty_alpha", 0.0},
      {"dola_layers", nullptr},
      {"typical_p", 1.0},
      {"epsilon_cutoff", 0.0},
      {"eta_cutoff", 0.0},
      {"top_h", nullptr},
      {"encoder_repetition_penalty", 1.0},
      {"no_repeat_ngram_size", 0},
      {"encoder_no_repeat_ngram_size", 0},
      {"bad_words_ids", nullptr},
      {"force_words_ids", nullptr},
      {"constraints", nullptr},
      {"renormalize_logits", false},
      {"forced_bos_token_id", nullptr},
      {"forced_eos_token_id", nullptr},
      {"remove_invalid_values", false},
      {"exponential_decay_length_penalty", nullptr},
      {"suppress_tokens", nullptr},
      {"begin_suppress_tokens", nullptr},
      {"sequence_bias", nullptr},
      {"token_healing", false},
      {"guidance_scale", 1.0},
      {"watermarking_config", nullptr},
      {"num_return_sequences", 1},
  };
  return kKeys;
}

void warn_of_keys_not_built(const Json& json, const fs::path& file) {
  const auto warn = [&](const char* key, const Json& value, const char* effect) {
    log::warning("{}: {} {} is not built in: {}", file.string(), key,
                 value.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 60), effect);
  };
  for (const auto& [key, off] : keys_not_built()) {
    const auto value = json.find(key);
    if (value == json.end() || value->is_null() || *value == off) continue;
    if (value->is_structured() && value->empty()) continue;
    warn(key, *value, "answers may differ from Hugging Face's");
  }
  // HF has it so: max_length, 20 unless said otherwise, gives way to max_new_tokens.
  const auto length = json.find("max_length");
  const bool outweighed = json.contains("max_new_tokens") && !json["max_new_tokens"].is_null();
  if (length != json.end() && !length->is_null() && *length != 20 && !outweighed)
    warn("max_length", *length, "--max_new_tokens bounds the answer");
}

EarlyStopping early_stopping(const Json& json, const fs::path& file) {
  const auto value = json.find("early_stopping");
  if (value == json.end() || value->is_null() || *value == false) return EarlyStopping::kHeuristic;
  if (*value == true) return EarlyStopping::kWhenFull;
  if (*value == "never") return EarlyStopping::kNever;
  throw ModelError(tr("{}: early_stopping must be true, false or \"never\", got {}", file.string(),
                      value->dump(-1, ' ', false, Json::error_handler_t::replace)));
}

/// Values out of range matter where they are used: HF too says nothing of a greedy model's top_p.
void check(SamplingParams& sampling, const fs::path& file) {
  try {
    sampling.validate();
  } catch (const UsageError& error) {
    if (sampling.do_sample || sampling.num_beams != 1)
      throw ModelError(tr("{}: {}", file.string(), error.what()), error.hint());
    log::warning("{}: its sampling settings are left out: {}", file.string(), error.what());
    sampling = SamplingParams{};
  }
}

std::vector<text::TokenId> stop_ids_of(const std::vector<int64_t>& ids) {
  std::vector<text::TokenId> stops;
  for (const int64_t id : ids) {
    // No vocabulary reaches beyond: such an id can never come.
    if (id <= std::numeric_limits<text::TokenId>::max())
      stops.push_back(static_cast<text::TokenId>(id));
  }
  return stops;
}

/// All but the ids that end an answer.
void read_generation_config(const Json& json, const fs::path& file, GenerationDefaults& defaults) {
  const Fields fields(json, file);
  SamplingParams& sampling = defaults.sampling;
  sampling.do_sample = fields.boolean("do_sample");
  sampling.temperature = fields.number("temperature", 1.0);
  const std::optional<int64_t> top_k = fields.integer("top_k");
  defaults.has_top_k = top_k.has_value();
  sampling.top_k = top_k.value_or(sampling.do_sample ? 50 : 0);  // HF's default
  sampling.top_p = fields.number("top_p", 1.0);
  sampling.min_p = fields.number("min_p", 0.0);
  sampling.repetition_penalty = fields.number("repetition_penalty", 1.0);
  sampling.num_beams = fields.integer("num_beams").value_or(1);
  sampling.length_penalty = fields.number("length_penalty", 1.0);
  sampling.early_stopping = early_stopping(json, file);
  defaults.max_new_tokens = fields.integer("max_new_tokens");
  if (defaults.max_new_tokens && *defaults.max_new_tokens <= 0) {
    throw ModelError(
        tr("{}: max_new_tokens must be > 0, got {}", file.string(), *defaults.max_new_tokens));
  }
  // Files written for greedy decoding often hold temperature 0, which HF reads as "do not sample".
  if (sampling.temperature <= 0) {
    defaults.has_no_temperature = true;
    sampling.do_sample = false;
    sampling.temperature = 1.0;
  }
  check(sampling, file);
  warn_of_keys_not_built(json, file);
}

}  // namespace

SamplingParams sampling_of_server(const GenerationDefaults& defaults) {
  SamplingParams sampling = defaults.sampling;
  sampling.do_sample = !defaults.has_no_temperature;
  if (!defaults.has_top_k) sampling.top_k = 0;
  sampling.num_beams = 1;
  return sampling;
}

SamplingParams sampling_of_swift(const GenerationDefaults& defaults) {
  constexpr int64_t kTopK = 50;
  SamplingParams sampling = defaults.sampling;
  if (!defaults.has_top_k) sampling.top_k = kTopK;
  sampling.num_beams = 1;
  return sampling;
}

GenerationDefaults generation_defaults_of(const arch::ModelConfig& model, const Json& json,
                                          const std::filesystem::path& file) {
  GenerationDefaults defaults;
  defaults.stop_ids = stop_ids_of(model.eos_ids);
  if (const auto eos = json.find("eos_token_id"); eos != json.end() && !eos->is_null()) {
    std::vector<int64_t> ids;
    for (const Json& id : eos->is_array() ? *eos : Json::array({*eos})) {
      if (!id.is_number_integer()) {
        throw ModelError(tr("{}: {} must be {}, got {}", file.string(), "eos_token_id",
                            "a whole number",
                            id.dump(-1, ' ', false, Json::error_handler_t::replace)));
      }
      ids.push_back(id.get<int64_t>());
    }
    defaults.stop_ids = stop_ids_of(ids);
  }
  read_generation_config(json, file, defaults);
  return defaults;
}

GenerationDefaults load_generation_defaults(const arch::ModelConfig& model,
                                            const std::filesystem::path& directory) {
  GenerationDefaults defaults;
  // load_model_config already merges the eos ids of both files.
  defaults.stop_ids = stop_ids_of(model.eos_ids);
  const std::filesystem::path file = directory / "generation_config.json";
  if (directory.empty() || !std::filesystem::exists(file)) return defaults;
  read_generation_config(read_json_file(file), file, defaults);
  return defaults;
}

}  // namespace danlu::infer
