// data/readers/dataset_info.h: LLaMA-Factory's dataset_info.json: names, files and column roles.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "data/formats/format_options.h"

namespace danlu::data {

struct DatasetInfo {
  std::filesystem::path file;  ///< file or directory that holds the rows
  std::string split;
  int64_t max_rows = -1;
  FormatOptions format;
};

/// The entry called `name` in dataset_info.json of `info_dir`, the current directory or ./data; or,
/// if `name` is an existing file, the entry for it in the dataset_info.json beside it.
/// Errors: DataError (malformed file; an entry without a file); UsageError (a key, formatting or
/// value that LLaMA-Factory does not know, with the nearest; a data set on a hub).
std::optional<DatasetInfo> find_dataset_info(const std::string& name,
                                             const std::filesystem::path& info_dir);

}  // namespace danlu::data
