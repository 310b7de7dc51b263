// base/failure_reader.h: exceptions of a library that has no type for what its text says.
#pragma once
#include <optional>
#include <string>

#include "base/error.h"

namespace danlu {

/// What a library threw, by the first line of it, as one of our errors; nothing of what it does not
/// know.
using FailureReader = std::optional<Error> (*)(const std::string& first_line);

/// Whom current_error() asks before it takes an exception for a bug; null: nobody. REQUIRES:
/// nothing fails at that moment.
void set_failure_reader(FailureReader reader);

}  // namespace danlu
