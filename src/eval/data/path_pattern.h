// eval/data/path_pattern.h: "test/{subject}_test.csv", "{subject}/test-*.parquet": finding files by
// them.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace danlu::eval {

/// The files below `root` that `pattern` names, sorted. Names that begin with a dot are found only
/// by a pattern that does. No subject: any. Errors: DataError for a pattern that leads out of
/// `root`.
std::vector<std::filesystem::path> files_matching(const std::filesystem::path& root,
                                                  const std::string& pattern,
                                                  const std::optional<std::string>& subject);

/// Whether `name`, a relative path, ends in what `pattern` names.
bool ends_in_pattern(const std::filesystem::path& name, const std::string& pattern);

/// `pattern` with the subject in it, for messages.
std::string with_subject(std::string pattern, const std::string& subject);

/// Errors: DataError if `path` is absolute or has "..".
void require_inside(const std::filesystem::path& path);

}  // namespace danlu::eval
