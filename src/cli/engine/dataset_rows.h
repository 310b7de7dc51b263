// cli/engine/dataset_rows.h: the rows of a data set, as commands that answer or judge them read it.
#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/options.h"
#include "data/preprocess_run.h"

namespace danlu::cli {

struct RowPlace {
  std::string text;              ///< such as "rows.jsonl:3"
  std::filesystem::path folder;  ///< of the file, which its pictures may be beside
};

/// Who takes the rows of a data set.
struct RowTaker {
  std::function<bool()> wants_more;
  std::function<void(data::Row row, RowPlace place)> take;
  /// Lines of text without any; empty: they are rows like others.
  std::function<void(RowPlace place)> take_blank = {};
};

/// Hands each usable row of a data set to `taker`, in the order of the files. Logs what the data
/// set is, which rows are dropped, and which columns nothing reads. Errors: as data::RowReader and
/// data::read_row; DataError if the dropped rows are more than `max_dropped_ratio` of those read;
/// as throw_interrupted after a signal.
void each_row(const data::PlannedDataset& planned, double max_dropped_ratio, const RowTaker& taker);

/// each_row of all data sets that `names` name, until --max_samples rows are there, `already` among
/// them. Their files join `files`. Errors: as each_row and data::plan_datasets.
void each_row_of(const std::vector<std::string>& names, const data::FormatOptions& format,
                 const Options& options, size_t already, std::vector<std::filesystem::path>& files,
                 const std::function<void(data::Row row, RowPlace place)>& take);

}  // namespace danlu::cli
