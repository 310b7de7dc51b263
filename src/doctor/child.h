// doctor/child.h: what may hang or die is asked of a child process, for a limited time.
#pragma once
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "doctor/system.h"

namespace danlu::doctor {

struct ChildResult {
  bool timed_out = false;  ///< it was killed then
  int signal = 0;          ///< that ended it, if one did
  int exit_code = -1;
  std::string out;  ///< its standard output and errors, at most 4 MiB
  bool succeeded() const { return !timed_out && signal == 0 && exit_code == 0; }
};

/// Runs a program, without a shell, with LC_ALL=C and nothing on standard input.
ChildResult run_program(const fs::path& program, const std::vector<std::string>& arguments,
                        double timeout_s);

/// body() in a copy of this process: what it returns is `out`, and exit code 0. What it prints is
/// lost; an exception is exit code 1 and its text is `out`.
ChildResult ask_child(const std::function<std::string()>& body, double timeout_s);

/// The program of that name in one of `roots.programs`; nothing if there is none.
std::optional<fs::path> find_program(const SystemRoots& roots, const std::string& name);

/// How a program failed, said to the user: "it did not answer within 20 s", "it ended with code 1:
/// <its last line>". REQUIRES: it did.
std::string describe_failure(const ChildResult& result, double timeout_s);

}  // namespace danlu::doctor
