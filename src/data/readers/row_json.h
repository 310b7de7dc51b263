// data/readers/row_json.h: a row's text as JSON, strictly.
#pragma once
#include "base/json.h"
#include "data/readers/row_reader.h"

namespace danlu::data {

/// REQUIRES: row.is_json. Errors: DataError with the row's place if its text is no JSON that can be
/// held (NaN, 1e400), or one of its objects has a key twice: which value was meant, nobody knows
/// (pyarrow, hence Hugging Face's datasets, refuses such rows too).
Json parse_row(const Dataset& dataset, const RawRow& row);

/// A key that an object in `text` has twice; "" if none has. `parsed` is what `text` parses to.
std::string find_duplicate_key(const std::string& text, const Json& parsed);

}  // namespace danlu::data
