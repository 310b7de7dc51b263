// data/readers/dataset_name.h: "data/x.json:train#100", what a user calls a data set, taken apart.
#pragma once
#include <cstdint>
#include <string>

namespace danlu::data {

/// Whether there is such a file or directory. Errors: DataError if that cannot be known: links in a
/// circle, a name that is too long, a directory that may not be entered.
bool dataset_path_exists(const std::string& path);

struct DatasetName {
  std::string path;  ///< the beginning of the text: path.size() is where the suffixes start
  std::string split;
  int64_t max_rows = -1;  ///< -1: all
};

/// `text` = path[:split][#n]. A text that names a file or directory, or is a glob that matches one,
/// is that path, whatever # and : it holds; else #n is taken off, and the same is asked of the
/// rest; else :split is taken off. (A # before the : belongs to the path if that is there.)
/// Errors: UsageError (what follows # is no number of rows); those of dataset_path_exists.
DatasetName parse_dataset_name(const std::string& text);

}  // namespace danlu::data
