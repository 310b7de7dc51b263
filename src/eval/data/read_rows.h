// eval/data/read_rows.h: the rows of a benchmark's files.
#pragma once
#include <filesystem>
#include <vector>

#include "base/json.h"
#include "eval/data/data_tree.h"

namespace danlu::eval {

/// Appends the rows of one file. Errors: as DataTree::rows.
void read_rows(const std::filesystem::path& path, const Layout& layout, std::vector<Json>* rows);

/// "file:line", or "file:row n", of a row that read_rows gave, from 0. Reads the file again.
std::string row_place_in(const std::filesystem::path& path, const Layout& layout, size_t index);

/// Errors: DataError if of files that say how many belong together ("test-00000-of-00002.parquet")
/// one is missing.
void require_whole_set(const std::vector<std::filesystem::path>& files);

}  // namespace danlu::eval
