// eval/data/read_rows.h: the rows of a benchmark's files.
#pragma once
#include <filesystem>
#include <vector>

#include "base/json.h"
#include "eval/data/data_tree.h"

namespace danlu::eval {

/// Appends the rows of one file. Errors: as DataTree::rows.
void read_rows(const std::filesystem::path& path, const Layout& layout, std::vector<Json>* rows);

/// Errors: DataError if of files that say how many belong together ("test-00000-of-00002.parquet")
/// one is missing.
void require_whole_set(const std::vector<std::filesystem::path>& files);

}  // namespace danlu::eval
