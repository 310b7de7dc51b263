// eval/environments/program_environment.h: an environment that is a program of the user, over a
// pipe.
#pragma once
#include <memory>
#include <string>

#include "eval/environments/environment.h"

namespace danlu::eval {

/// As make_environment("program:" + command). Errors: UsageError if the command is empty.
std::unique_ptr<Environment> make_program_environment(const std::string& command,
                                                      int64_t timeout_ms);

}  // namespace danlu::eval
