// eval/sandbox/interpreter.h: which files a Python interpreter consists of.
#pragma once
#include <string>
#include <vector>

namespace danlu::eval {

struct Interpreter {
  std::string executable;  ///< the program itself, not a link or a script that starts it
  std::string version;     ///< "3.11.7"
  /// The executable, its standard library and the shared libraries of both; absolute, none below
  /// another.
  std::vector<std::string> files;
  /// Folders inside `files` that are not the standard library (site-packages).
  std::vector<std::string> foreign;
  std::string library_path;  ///< the folders of the shared libraries, as LD_LIBRARY_PATH
};

/// Starts `python` (looked for in PATH), asks it where it lies, and the system's dynamic loader
/// what it needs. No site-packages, environment or working directory has a part in it.
/// Errors: UsageError naming --python if it cannot be started, is no Python or too old a one.
Interpreter find_interpreter(const std::string& python);

}  // namespace danlu::eval
