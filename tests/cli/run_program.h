// tests/cli/run_program.h: runs the built program and keeps what it printed.
#pragma once
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace danlu::test {

struct ProgramResult {
  int exit_code = -1;  ///< 128 + signal if one ended it
  std::string out, err;
};

struct ProgramSettings {
  std::string program = {};                             ///< empty: danlu_path()
  std::map<std::string, std::string> environment = {};  ///< added to a copy of ours
  std::string input = {};                               ///< what stdin holds
  std::string directory = {};                           ///< where it runs; empty: here
  int timeout_s = 1800;           ///< then it hangs, whatever else the machine does, and is killed
  int signal = 0;                 ///< sent once, if not 0, …
  std::string signal_after = {};  ///< … when it has printed this, …
  /// … and this is true, if it is set. Asked again and again while the program runs.
  std::function<bool()> signal_when = {};
};

/// `danlu ARGUMENTS…` of the build under test. LOG_LEVEL, DANLU_LANG and the locale are set to what
/// a test expects (info, English), the home directory is empty and goes afterwards, caches of the
/// user are unknown; unless `settings` says otherwise.
ProgramResult run_danlu(const std::vector<std::string>& arguments,
                        const ProgramSettings& settings = {});

/// The libraries that the dynamic linker opened, also later, in a run with LD_DEBUG=files.
std::set<std::string> opened_libraries(const ProgramResult& result);

/// The build's `danlu`.
std::string danlu_path();

/// The verbs that `danlu --help` lists.
std::vector<std::string> listed_commands();

}  // namespace danlu::test
