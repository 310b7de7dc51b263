// base/json.h: JSON values that keep key order, read from files with errors that say where.
#pragma once
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

namespace danlu {

/// Objects keep their order: files we rewrite must not be reshuffled.
using Json = nlohmann::ordered_json;

/// Parses `text`. Duplicate keys: the last one wins (as Python's json). A UTF-8 BOM is skipped.
/// Errors: DataError "<origin>:<line>:<column>: <what>".
Json parse_json(std::string_view text, const std::string& origin);

/// Reads and parses a file. Errors: IoError if unreadable, DataError as parse_json.
Json read_json_file(const std::filesystem::path& path);

/// On one line, whatever bytes the strings hold: what is no UTF-8, such as the name of a file may
/// be, becomes U+FFFD.
std::string dump_text(const Json& value);

/// Writes with indent 2 and a trailing newline, atomically (see write_file_atomic).
void write_json_file(const std::filesystem::path& path, const Json& value);

/// Errors: DataError `"key" must be <wanted>, got <what it is>`.
[[noreturn]] void throw_wrong_type(std::string_view key, const char* wanted, const Json& found);

/// `object[key]` if present and not null. T: Json, std::string, bool, or an integer or floating
/// type (5.0 is an integer too). Errors: DataError if it is of another type, naming key and both.
template <typename T>
std::optional<T> json_get(const Json& object, std::string_view key) {
  const auto it = object.find(std::string(key));
  if (it == object.end() || it->is_null()) return std::nullopt;
  if constexpr (std::is_same_v<T, bool>) {
    if (!it->is_boolean()) throw_wrong_type(key, "true or false", *it);
  } else if constexpr (std::is_same_v<T, std::string>) {
    if (!it->is_string()) throw_wrong_type(key, "a string", *it);
  } else if constexpr (std::is_integral_v<T>) {
    const bool whole = it->is_number_integer() ||
                       (it->is_number() && std::trunc(it->get<double>()) == it->get<double>() &&
                        std::abs(it->get<double>()) < 0x1p53);
    if (!whole) throw_wrong_type(key, "a whole number", *it);
  } else if constexpr (std::is_floating_point_v<T>) {
    if (!it->is_number()) throw_wrong_type(key, "a number", *it);
  }
  return it->get<T>();
}

}  // namespace danlu
