// data/formats/unread_columns.h: columns of a data set that its handler passes by.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "data/formats/row_format.h"

namespace danlu::data {

/// Column -> rows that have a value in it.
using ColumnCounts = std::map<std::string, int64_t>;

/// Names that rows of this layout may use and that --columns may give to others.
const std::vector<std::string>& standard_columns(RowFormat format);

/// Counts the columns with a value in `row` that `handler` does not read.
void count_unread_columns(const RowHandler& handler, const Json& row, ColumnCounts* counts);

/// Says which columns of a data set were not read: a warning for each that --columns could make one
/// the layout lacks (its name is nearly that), one line for the others. `first_rows` and `options`:
/// what the handler was made from; `dataset` begins the lines.
void report_unread_columns(const std::string& dataset, const RowHandler& handler,
                           const ColumnCounts& counts, const FormatOptions& options,
                           const std::vector<Json>& first_rows);

}  // namespace danlu::data
