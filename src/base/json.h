// base/json.h: JSON values that keep key order, read from files with errors that say where.
#pragma once
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace danlu {

/// Objects keep their order: files we rewrite must not be reshuffled.
using Json = nlohmann::ordered_json;

/// Parses `text`. Duplicate keys: the last one wins (as Python's json). A UTF-8 BOM is skipped.
/// Errors: DataError "<origin>:<line>:<column>: <what>".
Json parse_json(std::string_view text, const std::string& origin);

/// Reads and parses a file. Errors: IoError if unreadable, DataError as parse_json.
Json read_json_file(const std::filesystem::path& path);

/// Writes with indent 2 and a trailing newline, atomically (see write_file_atomic).
void write_json_file(const std::filesystem::path& path, const Json& value);

/// `object[key]` if present and not null.
template <typename T>
std::optional<T> json_get(const Json& object, std::string_view key) {
  auto it = object.find(std::string(key));
  if (it == object.end() || it->is_null()) return std::nullopt;
  return it->get<T>();
}

}  // namespace danlu
