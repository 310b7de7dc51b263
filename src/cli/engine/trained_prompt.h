// cli/engine/trained_prompt.h: what args.json beside weights says of the prompts that they were
// trained on, where the line is silent. Templates by name are text/template_record.h's.
#pragma once
#include <filesystem>
#include <string>

#include "base/json.h"
#include "base/options.h"

namespace danlu::cli {

struct TrainedPrompt {
  std::string system;  ///< the message itself, of conversations that have none; "": none
  Json variables = Json::object();  ///< of the template
  bool empty() const { return system.empty() && variables.empty(); }
};

/// What the record of `directory` says and neither --system (an empty one, too) nor
/// --enable_thinking and --chat_template_kwargs do. A recorded message is never read as a path: a
/// checkpoint comes from anywhere. Errors: ModelError for a broken record.
TrainedPrompt trained_prompt(const Options& options, const std::filesystem::path& directory);

/// One notice of what was taken, and how it is left out.
void report_trained_prompt(const TrainedPrompt& prompt, const std::filesystem::path& directory);

}  // namespace danlu::cli
