// data/readers/csv_records.h: the rows of .csv and .tsv files (RFC 4180), strictly.
#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/readers/byte_stream.h"

namespace danlu::data {

enum class CsvHeader { kFirstRow, kNone };

/// Streams rows under a header. Fields may be quoted and then hold separators, line ends and ""
/// for a quote. Nothing is guessed away: a row with other fields than the header is an error, no
/// row is skipped but blank lines.
class CsvRecords {
 public:
  /// Reads the header. `separator` 0: the first of , ; tab | that the header line has, else a
  /// comma. A column without a name (pandas' index) is called column0, column1, … by its place.
  /// kNone: the first row is a row; only next_fields can be asked, and columns() is empty.
  /// Errors: DataError at file:line (two columns of one name, more than kMaxColumns); those of
  /// next.
  CsvRecords(const std::filesystem::path& path, char separator,
             CsvHeader header = CsvHeader::kFirstRow);

  const std::vector<std::string>& columns() const { return columns_; }
  /// The next row as a JSON object of strings; fields that are empty and not quoted are null.
  /// False at the end. Errors: DataError at file:line (a quote that is never closed, text after a
  /// closing quote, too few or too many fields, bytes that are not UTF-8, more than
  /// kMaxRecordBytes).
  bool next(std::string* json);
  /// The next row's fields as texts, however many there are; blank lines are passed by. False at
  /// the end. Errors: as next, but for the number of fields.
  bool next_fields(std::vector<std::string>* fields);
  /// The line (from 1) on which the last row that was given begins.
  int64_t row_line() const { return record_line_; }
  uint64_t file_bytes_read() const { return bytes_.file_bytes_read(); }

 private:
  struct Field {
    std::string text;
    bool quoted = false;
  };

  bool next_record(std::vector<Field>* fields);
  /// The same, past blank lines, into fields_.
  bool next_row();
  /// Takes a field, not what follows it.
  void take_field(Field* field);
  void take_quoted(Field* field);
  void add_byte(Field* field, char c);
  void choose_separator();
  [[noreturn]] void fail(int64_t line, const std::string& what) const;

  std::filesystem::path path_;
  ByteCursor bytes_;
  char separator_;
  int64_t line_ = 1;                         ///< of the next byte
  int64_t record_line_ = 1;                  ///< where the last record began
  size_t record_bytes_ = 0;                  ///< of the record being read
  std::vector<std::string> columns_, keys_;  ///< keys_: columns_ as JSON
  std::vector<Field> fields_;
};

}  // namespace danlu::data
