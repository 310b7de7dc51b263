// base/yaml.h: a YAML document as JSON: for files that say what to do, such as a benchmark's.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>

#include "base/json.h"

namespace danlu {

/// The value of one scalar, typed as YAML 1.2's core schema does: null, true, false, 12, 0x1f,
/// 0o17, 1.5e3; everything else is a string, what is quoted always (is_plain false).
Json yaml_scalar(const std::string& text, bool is_plain);

/// One document; maps keep their order, keys are strings. An empty document is null.
/// `tag_hint` is the hint of the error about tags such as `!function`.
/// Errors: UsageError "<origin>:<line>: …" (syntax, not UTF-8, a key written twice in one map, a
/// second document, a tag that is not YAML's own, nested too deeply, values that aliases blow up
/// beyond 32 MiB).
Json parse_yaml(std::string_view text, const std::string& origin, const std::string& tag_hint = {});

/// Reads and parses a file. Errors: UsageError, for an unreadable file too.
Json read_yaml_file(const std::filesystem::path& path, const std::string& tag_hint = {});

}  // namespace danlu
