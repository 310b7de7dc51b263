// What libtorch says of its own build, for `danlu doctor`.
#include <ATen/Version.h>

#include <string>

#include "cli/command.h"

namespace danlu::cli {

extern "C" __attribute__((visibility("default"))) const char* danlu_engine_describe() {
  static const std::string config = at::show_config();
  return config.c_str();
}

}  // namespace danlu::cli
