#include <fmt/format.h>

#include <vector>

#include "base/message.h"
#include "cli/command.h"

namespace danlu::cli {

std::string environment_help() {
  return tr(
      "LOG_LEVEL=debug|info|warning|error|off, OMP_NUM_THREADS, DANLU_LANG=zh|en,\n"
      "DANLU_DEBUG=1 (show where an error was thrown).\n");
}

std::string overview() {
  std::string out =
      tr("danlu (丹炉): prepare data for, train, convert and talk to language models\n\n"
         "Usage: danlu <command> [file.yaml] [--flag value …]\n");
  std::vector<std::string> groups;
  for (const Command& command : commands()) {
    bool known = false;
    for (const std::string& group : groups) known = known || group == command.group;
    if (!known) groups.push_back(command.group);
  }
  for (const std::string& group : groups) {
    out += fmt::format("\n{}\n", translated(group));
    for (const Command& command : commands()) {
      if (command.group == group)
        out += fmt::format("  {:<12} {}\n", command.name, translated(command.summary));
    }
  }
  return out +
         tr("\ndanlu <command> --help explains a command; danlu --version prints the version.\n"
            "Environment: {}",
            environment_help());
}

}  // namespace danlu::cli
