// `danlu devices`: the cards of this machine, how they are joined, and its processors.
#include "doctor/devices.h"

#include <cstdio>

#include "base/error.h"
#include "base/json.h"
#include "cli/commands/commands.h"

namespace danlu::cli {

OptionTable devices_options() {
  return OptionTable("devices", "show the cards of this machine, their links, and its processors",
                     "danlu devices [info] [-t topo] [--json]",
                     {
                         {.name = "type",
                          .help = "npu-smi's own flag: what is shown has it all",
                          .aliases = {"t"},
                          .choices = {"topo"},
                          .group = "Output"},
                         {.name = "json",
                          .type = OptionType::kBool,
                          .default_text = "false",
                          .help = "print one JSON object",
                          .group = "Output"},
                     });
}

int run_devices(const Options& options) {
  for (const std::string& word : options.positional()) {
    if (word == "info") continue;  // npu-smi's word for this
    throw UsageError(tr("[devices] unexpected word '{}'", word),
                     tr("danlu devices shows cards, their links and processors"));
  }
  const doctor::Devices devices = doctor::read_devices(doctor::SystemRoots::of_this_machine());
  const std::string text = options.get_bool("json") ? dump_text(doctor::to_json(devices)) + "\n"
                                                    : doctor::describe(devices);
  std::fputs(text.c_str(), stdout);
  return static_cast<int>(devices.has_failure() ? ExitCode::kDevice : ExitCode::kSuccess);
}

}  // namespace danlu::cli
