// cli/engine/dataset_rows.h: the rows of a data set, as commands that answer or judge them read it.
#pragma once
#include <cstddef>
#include <functional>
#include <string>

#include "data/preprocess_run.h"

namespace danlu::cli {

/// Hands each usable row of a data set to `take` with its place, such as "rows.jsonl:3", in the
/// order of the files, while `wants_more()`. Logs what the data set is and which rows are dropped.
/// Errors: as data::RowReader and data::read_row; DataError if the dropped rows are more than
/// `max_dropped_ratio` of those read.
void each_row(const data::PlannedDataset& planned, double max_dropped_ratio,
              const std::function<bool()>& wants_more,
              const std::function<void(data::Row row, std::string place)>& take);

}  // namespace danlu::cli
