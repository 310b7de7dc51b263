// cli/absent_commands.h: commands of other systems that Danlu has not, or has under another name.
#pragma once
#include <string>
#include <vector>

#include "base/error.h"

namespace danlu::cli {

/// What is said to who types one of `names`.
struct AbsentCommand {
  std::vector<std::string> names;
  std::string why;
  std::string hint;
  std::string becomes = {};  ///< the command that does it here
};

/// A test holds that no name here is a command; one that becomes a command leaves this list.
const std::vector<AbsentCommand>& absent_commands();

/// The entry for `name`, dash and underscore being the same and `.py` left out, or nullptr.
const AbsentCommand* find_absent_command(const std::string& name);

/// A program whose lines guides print.
struct ForeignProgram {
  std::string why;           ///< it is none of danlu's commands
  std::string becomes = {};  ///< the command that does its work; empty: its line names one
  bool launches = false;     ///< its own flags are danlu launch's
};

/// "python", "swift", "npu-smi", …, also with a path; nullptr for another name.
const ForeignProgram* find_foreign_program(const std::string& name);

/// The words behind `danlu eval`, of a line that may be lm-eval's: its commands run and ls, and
/// what its -v names, are taken out or said as Danlu says them. Errors: UsageError for validate.
std::vector<std::string> eval_words(std::vector<std::string> words);

/// The last part of a path without `.py`.
std::string command_of_script(const std::string& name);

}  // namespace danlu::cli
