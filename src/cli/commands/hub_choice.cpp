#include "cli/commands/hub_choice.h"

#include <cstdlib>

namespace danlu::cli {

OptionSpec hub_choice_option(const std::string& group) {
  return {.name = "use_hf",
          .type = OptionType::kBool,
          .help =
              "what is fetched comes from Hugging Face, or with false from ModelScope (as "
              "USE_HF=1 and USE_HF=0 in the environment)",
          .group = group,
          .scope = OptionScope::kMachine};
}

void take_hub_choice(const OptionTable& table, const Options& options) {
  const OptionSpec* const spec = table.find_spec("use_hf");
  if (!spec || !spec->ignored_because.empty() || !options.is_given("use_hf")) return;
  const bool is_hf = options.get_bool("use_hf");
  ::setenv("USE_HF", is_hf ? "1" : "0", /*overwrite=*/1);
  ::setenv("USE_MODELSCOPE_HUB", is_hf ? "0" : "1", /*overwrite=*/1);
}

}  // namespace danlu::cli
