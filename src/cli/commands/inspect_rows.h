// cli/commands/inspect_rows.h: `danlu inspect` of rows: json, jsonl, csv, parquet, txt.
#pragma once
#include <cstdint>
#include <string>

#include "base/options.h"

namespace danlu::cli {

/// True if `path` (or path[:split][#n], a glob, a name in dataset_info.json) leads to files of
/// rows. Errors: DataError and UsageError where it does and something is wrong with the rest.
bool is_row_dataset(const std::string& path);

/// Prints files, rows (all of them, streamed), columns with their types, the detected layout and
/// one row in short: --sample, else the first. With --model also that row as training sees it.
/// Errors: those of the readers, of the tokenizer and of the template.
void inspect_rows(const std::string& path, const Options& options);

}  // namespace danlu::cli
