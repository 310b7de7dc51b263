// tests/arch/parsed_config.h: what config.json says, checked, and what is wrong with it.
#pragma once
#include <string>

#include "arch/model_config.h"
#include "support/throws.h"

namespace danlu::arch {

inline ModelConfig parse(const Json& json) {
  ModelConfig config = family_of(json).parse(json);
  config.validate();
  return config;
}

inline std::string model_error(const Json& json) {
  return test::error_of<ModelError>([&] { parse(json); });
}

}  // namespace danlu::arch
