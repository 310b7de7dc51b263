// data/readers/row_json.h: a row's text as JSON, strictly.
#pragma once
#include <optional>
#include <string>

#include "base/json.h"
#include "data/readers/row_reader.h"

namespace danlu::data {

/// REQUIRES: row.is_json. Errors: DataError with the row's place if its text is no JSON that can be
/// held (NaN, 1e400); has an integer that 64 bits do not hold among its tools or tool calls, whose
/// text would change; has an object of more than kMaxColumns keys, or more than kMaxRowValues
/// values; or one of its objects has a key twice: which value was meant, nobody knows (pyarrow,
/// hence Hugging Face's datasets, refuses such rows too).
Json parse_row(const Dataset& dataset, const RawRow& row);

/// What is wrong with a row that is JSON, and what to do.
struct RowRefusal {
  std::string why, hint;  ///< "" for text that is no JSON
};

/// What parse_row makes of a row's or a cell's text, in time n log n. Nothing if it is refused.
std::optional<Json> parse_row_text(const std::string& text, RowRefusal* refusal);

}  // namespace danlu::data
