// base/option_file.h: configuration files of a command: YAML or JSON, flattened to name and text.
#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace danlu {

/// One `key: value` of a configuration file.
struct OptionFileEntry {
  enum class Kind { kScalar, kList, kMap };
  std::string key;   ///< as written
  std::string text;  ///< scalars as written, lists as a JSON array of strings, maps as JSON
  std::string json;  ///< the same value as typed JSON: what a JSON option takes
  Kind kind = Kind::kScalar;
  std::string origin;  ///< "run.yaml:3"
  std::string file;    ///< "run.yaml": the one that holds the entry, not the one that includes it
};

/// Reads `path` (.yaml, .yml, .json), the files it includes first. Order: later entries win.
/// `include: FILE` or a list, relative to the including file; `${VAR}` and `${VAR:-default}` in
/// every value; the map `ENV:` sets environment variables of this process; a map under a key for
/// which `is_group` holds is opened, under other keys it is a value. `key:` without a value is
/// skipped. Errors: UsageError "<file>:<line>: <rule>" (syntax, unset variable, include cycle, not
/// a map, a key written twice in one map, a second document, values that aliases or variables blow
/// up beyond 32 MiB); IoError if unreadable.
std::vector<OptionFileEntry> read_option_file(
    const std::filesystem::path& path, const std::function<bool(const std::string&)>& is_group);

/// The same from a text, without a file: what the fuzzer calls. Includes are relative to `origin`.
std::vector<OptionFileEntry> read_option_text(
    std::string_view text, const std::filesystem::path& origin,
    const std::function<bool(const std::string&)>& is_group);

/// Replaces ${VAR} and ${VAR:-default}. Errors: UsageError naming the variable and `where`.
std::string expand_variables(std::string_view text, const std::string& where);

}  // namespace danlu
