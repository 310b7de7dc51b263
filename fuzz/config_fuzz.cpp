// fuzz/config_fuzz.cpp: any JSON as a config.json must give a usable ModelConfig or a clear error,
// and what is usable must be consistent: parameter shapes are positive and their count does not
// overflow.
#include <cstdint>
#include <cstdlib>

#include "arch/model_config.h"
#include "base/error.h"
#include "weights/lora/peft.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace danlu;
  Json json;
  try {
    json = parse_json({reinterpret_cast<const char*>(data), size}, "input");
  } catch (const DataError&) {
    return 0;
  }
  try {
    const arch::ModelConfig config = arch::family_of(json).parse(json);
    config.validate();
    if (config.num_layers > 64) return 0;
    for (const arch::ParamSpec& spec : arch::parameters_of(config)) {
      for (const int64_t extent : spec.shape) {
        if (extent <= 0) std::abort();
      }
    }
    if (arch::parameter_count(config) <= 0) std::abort();
  } catch (const ModelError&) {
  }
  // Its patterns go to the standard library's regex engine, whose running time is the user's own
  // affair.
  if (json.is_object() && json.contains("peft_type")) {
    for (const char* key :
         {"target_modules", "exclude_modules", "rank_pattern", "alpha_pattern", "layers_pattern"})
      json.erase(key);
    try {
      weights::peft_config_json(weights::parse_peft_config(json, "input"));
    } catch (const ModelError&) {
    }
  }
  return 0;
}
