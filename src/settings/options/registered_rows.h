// settings/options/registered_rows.h: published data sets whose rows ms-swift rewrites before
// training.
#pragma once
#include <filesystem>

namespace danlu::settings {

/// blossom-math: query = input, response = output, a blank line, "Answer: " and answer. Written
/// once as .jsonl below `cache_dir`; made again when the source's files change. Errors: DataError
/// naming a row that lacks one of the three columns; as the row reader's.
std::filesystem::path joined_blossom_math(const std::filesystem::path& source,
                                          const std::filesystem::path& cache_dir);

}  // namespace danlu::settings
