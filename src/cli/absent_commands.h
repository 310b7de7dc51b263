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
};

/// None of the names is a command (a test); one that becomes a command leaves this list.
const std::vector<AbsentCommand>& absent_commands();

/// The entry for `name`, dash and underscore being the same and `.py` left out, or nullptr.
const AbsentCommand* find_absent_command(const std::string& name);

/// The last part of a path without `.py`.
std::string command_of_script(const std::string& name);

}  // namespace danlu::cli
