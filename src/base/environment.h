// base/environment.h: variables of the environment.
#pragma once
#include <cstdlib>
#include <string>

namespace danlu {

/// "" for one that is not set.
inline std::string environment_variable(const char* name) {
  const char* const value = std::getenv(name);
  return value ? value : "";
}

}  // namespace danlu
