// base/option_json.h: JSON configuration files as YAML text, line for line.
#pragma once
#include <string>
#include <string_view>

namespace danlu::option_text {

/// Valid JSON rewritten as YAML of the same meaning in which everything stands on the line it stood
/// on, so that messages about a JSON file can name lines. JSON is nearly YAML; tabs between tokens,
/// escaped surrogate pairs and a line break before ':' are not.
/// REQUIRES: parse_json accepts `json`.
std::string json_as_yaml(std::string_view json);

}  // namespace danlu::option_text
