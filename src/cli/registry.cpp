// The verbs of `danlu`, in help order: one entry per verb, an explicit list.
//
// To add a verb: its option table (and, without tensors, its body) in src/cli/commands/<verb>.cpp,
// declared in commands.h; one entry here; with tensors also src/cli/engine/<verb>.cpp and one entry
// in engine_registry.cpp. Then make its golden help text: tests/cli/README.md.
#include <algorithm>

#include "cli/command.h"
#include "cli/commands/commands.h"

namespace danlu::cli {

const std::vector<Command>& commands() {
  static const std::vector<Command> list = {
      {.name = "infer",
       .summary = "answer prompts, files or data sets with a model",
       .group = "Use",
       .options = infer_options,
       .accepts_config = true},
      {.name = "chat",
       .summary = "talk to a model in the terminal",
       .group = "Use",
       .options = chat_options,
       .accepts_config = true},
      {.name = "completion",
       .summary = "print a completion script for bash or zsh",
       .group = "Tools",
       .options = completion_options,
       .max_positional = 1,
       .run = run_completion},
  };
  return list;
}

const Command* find_command(const std::string& name) {
  std::string wanted = name;
  std::replace(wanted.begin(), wanted.end(), '_', '-');
  for (const Command& command : commands()) {
    if (command.name == wanted) return &command;
    for (const std::string& alias : command.aliases) {
      if (alias == wanted) return &command;
    }
  }
  return nullptr;
}

}  // namespace danlu::cli
