// eval/scoring/python_str.h: values as Python prints them, which is how the harness writes and
// hashes them.
#pragma once
#include <string>

#include "base/json.h"

namespace danlu::eval {

/// str(value): texts as they are, True, False, None, 1.0, [0, 'a'].
std::string python_str(const Json& value);

}  // namespace danlu::eval
