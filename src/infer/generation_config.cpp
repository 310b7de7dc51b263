#include "arch/model_config.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "infer/generate.h"

namespace danlu::infer {

GenerationDefaults load_generation_defaults(const std::filesystem::path& model_directory) {
  GenerationDefaults defaults;
  // load_model_config already merges the eos ids of both files.
  for (const int64_t id : arch::load_model_config(model_directory).eos_ids) {
    defaults.stop_ids.push_back(static_cast<text::TokenId>(id));
  }
  const std::filesystem::path file = model_directory / "generation_config.json";
  if (!std::filesystem::exists(file)) return defaults;
  const Json json = read_json_file(file);
  SamplingParams& sampling = defaults.sampling;
  try {
    sampling.do_sample = json_get<bool>(json, "do_sample").value_or(false);
    sampling.temperature = json_get<double>(json, "temperature").value_or(1.0);
    sampling.top_k =
        json_get<int64_t>(json, "top_k").value_or(sampling.do_sample ? 50 : 0);  // HF's own default
    sampling.top_p = json_get<double>(json, "top_p").value_or(1.0);
    sampling.min_p = json_get<double>(json, "min_p").value_or(0.0);
    sampling.repetition_penalty = json_get<double>(json, "repetition_penalty").value_or(1.0);
    sampling.num_beams = json_get<int64_t>(json, "num_beams").value_or(1);
    sampling.length_penalty = json_get<double>(json, "length_penalty").value_or(1.0);
    defaults.max_new_tokens = json_get<int64_t>(json, "max_new_tokens");
  } catch (const Json::exception& e) {
    throw ModelError(file.string() + ": " + e.what());
  }
  // Files written for greedy decoding often hold temperature 0, which HF reads as "do not sample".
  if (sampling.temperature <= 0) {
    sampling.do_sample = false;
    sampling.temperature = 1.0;
  }
  return defaults;
}

}  // namespace danlu::infer
