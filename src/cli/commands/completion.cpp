// `danlu completion bash|zsh`: completes verbs and flags in the user's shell.
#include <cstdio>

#include "base/error.h"
#include "cli/command.h"
#include "cli/commands/commands.h"

namespace danlu::cli {

OptionTable completion_options() {
  return OptionTable("completion", "print a completion script for your shell",
                     "danlu completion bash|zsh", {});
}

int run_completion(const Options& options) {
  if (options.positional().empty()) {
    throw UsageError(tr("[completion] name a shell: bash or zsh"),
                     tr("add to ~/.bashrc: source <(danlu completion bash)"));
  }
  std::fputs(completion_script(options.positional()[0]).c_str(), stdout);
  return 0;
}

}  // namespace danlu::cli
