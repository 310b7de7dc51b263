// cli/infer_talks.h: whether `danlu infer` is a chat. (Here, since the engine and the program both
// need it.)
#pragma once
#include "base/options.h"

namespace danlu::cli {

inline bool infer_talks(const Options& options) {
  if (options.get_string_or("task", "") == "chat") return true;
  return !options.has_value("prompt") && !options.has_value("dataset") &&
         !options.get_bool("load_dataset_config");
}

}  // namespace danlu::cli
