// data/formats/unread_columns.h: columns of a data set that its handler passes by.
#pragma once
#include <string>
#include <vector>

#include "data/formats/row_format.h"

namespace danlu::data {

/// The columns with a value in any of `rows` that `handler` does not read, in alphabetical order.
std::vector<std::string> unread_columns(const RowHandler& handler, const std::vector<Json>& rows);

/// Says which they are: a warning for each that looks like a misspelt name of one that would be
/// read, one notice for the others. `dataset` begins the lines.
void report_unread_columns(const std::string& dataset, const RowHandler& handler,
                           const std::vector<Json>& rows);

}  // namespace danlu::data
