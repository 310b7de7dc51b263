// cli/engine/serve_adapters.h: the adapters that `danlu serve` is told of.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "base/options.h"
#include "cli/engine/load_for_inference.h"
#include "serve/served_adapters.h"

namespace danlu::cli {

struct AdapterFlags {
  struct Named {
    std::string name;
    std::filesystem::path path;
    std::string parent = {};  ///< the base model's name that its card shows
  };
  std::filesystem::path own = {};  ///< --adapters DIR: a part of the model; empty: none
  std::vector<Named> named = {};   ///< --lora_modules and --adapters NAME=DIR
};

/// Errors: UsageError for what is neither NAME=DIR nor JSON, a name given twice, and adapters of
/// both kinds.
AdapterFlags adapter_flags(const Options& options);

/// Where the model is; without --model the first adapter says it.
ModelLocation locate_served(const Options& options, const AdapterFlags& adapters);

/// Opens adapters beside the loaded model. Errors: ModelError as models::load_beside, for a path
/// that is no directory and for a rank above --max_lora_rank. All arguments outlive it.
serve::LoadAdapter adapter_loader(const Options& options, const ModelLocation& where,
                                  const InferenceModel& loaded);

}  // namespace danlu::cli
