// `danlu doctor`: whether this machine has what runs need, and what to do where it has not.
#include <cstdio>
#include <filesystem>

#include "base/json.h"
#include "cli/commands/commands.h"
#include "data/tokenized_dataset.h"
#include "doctor/check.h"

namespace danlu::cli {

OptionTable doctor_options() {
  const std::string what = "What", output = "Output";
  return OptionTable(
      "doctor", "examine this machine: what runs need, and what to do where it is missing",
      "danlu doctor [--only NAME,…] [--path DIR] [--json]",
      {
          {.name = "only",
           .type = OptionType::kList,
           .help = "the checks to make: cpu, quota, memory, …; all without it",
           .group = what},
          {.name = "path",
           .type = OptionType::kList,
           .default_text = ".",
           .help = "directories that runs are to write to",
           .group = what},
          {.name = "json",
           .type = OptionType::kBool,
           .default_text = "false",
           .help = "print one JSON object: the checks with name, verdict, read and remedy",
           .group = output},
      });
}

int run_doctor(const Options& options) {
  namespace fs = std::filesystem;
  doctor::SystemRoots roots = doctor::SystemRoots::of_this_machine();
  for (const std::string& path : options.get_list("path")) roots.storage.emplace_back(path);
  roots.storage.push_back(data::default_cache_dir());
  std::error_code none;
  if (const fs::path temporary = fs::temp_directory_path(none); !none)
    roots.storage.push_back(temporary);
  const auto results = doctor::examine(roots, options.get_list("only"));
  const int code =
      static_cast<int>(doctor::has_failed(results) ? ExitCode::kDevice : ExitCode::kSuccess);
  if (!options.get_bool("json")) {
    std::fputs(doctor::describe(results).c_str(), stdout);
    return code;
  }
  Json list = Json::array();
  for (const doctor::Result& result : results) {
    list.push_back({{"name", result.name},
                    {"verdict", doctor::verdict_name(result.finding.verdict)},
                    {"read", result.finding.read},
                    {"remedy", result.finding.remedy}});
  }
  const Json all = {{"checks", list}, {"exit_code", code}};
  std::fputs((dump_text(all) + "\n").c_str(), stdout);
  return code;
}

}  // namespace danlu::cli
