// cli/command.h: what a verb is, and the line between the program and the tensor engine.
#pragma once
#include <string>
#include <vector>

#include "base/options.h"

namespace danlu::cli {

/// One verb of `danlu <verb>`. Its option table is torch-free, so help and flag errors cost nothing.
struct Command {
  std::string name;
  std::string summary;                 ///< one line for `danlu --help`
  std::string group;                   ///< "Data", "Train", "Use", "Weights", "Tools"
  OptionTable (*options)();
  bool accepts_config = false;         ///< a positional .yaml/.json is a configuration file
  /// Torch-free verbs: runs and returns an exit code. nullptr: the engine library runs it.
  int (*run)(const Options& options) = nullptr;
  std::vector<std::string> aliases = {};
};

/// The explicit list, in help order (src/cli/registry.cpp).
const std::vector<Command>& commands();

/// Exported by the engine library as `danlu_engine_run`; opened by main only when needed.
/// Throws danlu::Error like every other code; main turns errors into text and exit codes.
using EngineRun = int (*)(const char* command, const Options* options);

}  // namespace danlu::cli
