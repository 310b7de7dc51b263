// data/readers/json_records.h: the records of JSON text, one at a time.
#pragma once
#include <memory>
#include <string>

#include "data/readers/byte_stream.h"

namespace danlu::data {

/// Splits an array of records, or records one after the other, into the texts of the records. What
/// is between records is checked, what is in them is not. Memory is that of the longest record,
/// which is no longer than kMaxRecordBytes.
class JsonRecords {
 public:
  explicit JsonRecords(std::unique_ptr<ByteStream> stream);
  /// False at the end, where the text is malformed, or at a record that is too long.
  bool next(std::string* record);
  /// True if next() stopped at something other than the end of well-formed text.
  bool malformed() const { return malformed_; }
  bool too_long() const { return too_long_; }
  uint64_t file_bytes_read() const { return bytes_.file_bytes_read(); }

 private:
  int peek_behind_space();
  /// Goes to the next record; false if there is none.
  bool find_record();
  void take_record(std::string* record);
  void take_string(std::string* record);
  /// Takes a byte; false if it is one too many.
  bool take(std::string* record);

  ByteCursor bytes_;
  bool begun_ = false, in_array_ = false, malformed_ = false, too_long_ = false;
};

}  // namespace danlu::data
