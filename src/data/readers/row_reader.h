// data/readers/row_reader.h: the rows of a data set in order, as they stand in the files.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/readers/data_files.h"

namespace danlu::data {

/// A row before it has a meaning. Rows of tables become JSON objects, null columns left in as null.
struct RawRow {
  std::string text;  ///< one JSON value, or the plain text of a .txt line or document
  bool is_json = true;
  uint32_t file = 0;  ///< index into Dataset::files
  int64_t index = 0;  ///< from 0, within the file: record, line or row
};

/// Streams rows with bounded memory, in file order, a row that is chosen several times as often in
/// a row; what is chosen otherwise than RowChoice::kFirst is read twice, to be counted. Not
/// thread-safe.
class RowReader {
 public:
  /// Opens nothing yet. `dataset` must outlive the reader.
  explicit RowReader(const Dataset& dataset);
  ~RowReader();
  RowReader(const RowReader&) = delete;
  RowReader& operator=(const RowReader&) = delete;

  /// Appends the next block of rows; false at the end (nothing appended).
  /// Errors: DataError at file:line:column for malformed JSON, at the file for a damaged table;
  /// IoError if a file cannot be read.
  bool next_block(std::vector<RawRow>* rows);
  /// How many of the files' bytes were read.
  uint64_t bytes_read() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// row_place of many rows. Asked for in the order of the rows, the files are read once; row_place
/// itself reads a JSON or CSV file up to the row.
class RowPlaces {
 public:
  /// `dataset` must outlive it.
  explicit RowPlaces(const Dataset& dataset);
  ~RowPlaces();
  std::string of(uint32_t file, int64_t index);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// "file:line" or, for parquet, "file:row k" (both from 1); for messages.
std::string row_place(const Dataset& dataset, uint32_t file, int64_t index);

/// Throws the DataError, with its place, of a row whose text is no JSON that can be held (NaN,
/// 1e400).
[[noreturn]] void refuse_malformed_row(const Dataset& dataset, const RawRow& row);

}  // namespace danlu::data
