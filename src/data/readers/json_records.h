// data/readers/json_records.h: the records of JSON text, one at a time.
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "data/readers/byte_stream.h"
#include "data/readers/json_walk.h"

namespace danlu::data {

/// Splits an array of records, or records one after the other, into the texts of the records, which
/// are checked: what is given is one well-formed value in UTF-8 (see JsonWalker). Where the first
/// record is a line, every other one is too; a list that is a line is a record if others follow it,
/// else the array of all. Memory is a few times that of the longest record, which is no longer than
/// kMaxRecordBytes.
class JsonRecords {
 public:
  explicit JsonRecords(std::unique_ptr<ByteStream> stream);
  /// False at the end, where the text is malformed, or at a record that is too long. The view lasts
  /// until the next call.
  bool next(std::string_view* record);
  /// True if next() stopped at something other than the end of well-formed text.
  bool malformed() const { return malformed_; }
  bool too_long() const { return too_long_; }
  /// Whether a record ends with its line.
  bool one_a_line() const { return layout_ == Layout::kLines; }
  uint64_t file_bytes_read() const { return stream_->file_bytes_read(); }

 private:
  enum class Layout { kUnknown, kArray, kLines, kValues };

  /// Reads on; false at the end of the stream.
  bool more();
  /// The first byte at or after `at` that is none of `space`; -1 at the end.
  int peek_behind(std::string_view space, size_t* at);
  int peek_behind_space();
  bool is_line_among_others();
  bool find_first_record();
  /// Goes to the next record; false if there is none.
  bool find_record();
  bool take_record(std::string_view* record);
  /// After a record outside of an array, which ends at `end`.
  bool may_end_at(size_t begin, size_t end);

  std::unique_ptr<ByteStream> stream_;
  std::string window_;  ///< what was read, less what lies some way behind at_
  size_t at_ = 0;
  bool ended_ = false;  ///< nothing follows the window
  Layout layout_ = Layout::kUnknown;
  bool begun_ = false, over_ = false, malformed_ = false, too_long_ = false;
};

}  // namespace danlu::data
