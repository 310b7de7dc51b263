// data/megatron/python_json.h: JSON text exactly as Python's json.dumps(value, indent=4) writes it.
#pragma once
#include <string>

#include "base/json.h"

namespace danlu::data {

/// Cache names are hashes of this text, so each byte counts: indentation 4, ", " never, empty
/// containers on one line, non-ASCII as \uXXXX (surrogate pairs above U+FFFF), floats as repr().
std::string python_json(const Json& value);

/// repr() of a Python float: shortest digits that read back equal; exponent below 1e-4 and from
/// 1e16.
std::string python_float(double value);

}  // namespace danlu::data
