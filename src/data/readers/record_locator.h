// data/readers/record_locator.h: line numbers in JSON files, looked up only when a message needs
// them.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

namespace danlu::data {

/// "file:place", the place as JsonRecordLines::place_of says it.
std::string json_record_place(const std::filesystem::path& path, int64_t index);

/// The places of records of one JSON file, an array of records or records one after the other. They
/// are asked for in rising order: the file is read once, up to the last of them.
class JsonRecordLines {
 public:
  explicit JsonRecordLines(const std::filesystem::path& path);
  ~JsonRecordLines();
  JsonRecordLines(JsonRecordLines&&) noexcept;
  /// The line (from 1) on which record `index` (from 0) begins; 0 if there are fewer. REQUIRES:
  /// index is not below that of the last call.
  int64_t line_of(int64_t index);
  /// "7", the line of a record; "record 3" (from 1) where others begin on the same line, whose
  /// number would not tell them apart. REQUIRES: as line_of.
  std::string place_of(int64_t index);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The parser's words without the rest of a long string that they quote.
std::string shortened_fault(std::string what);

/// Parses a JSON file to find its first fault. `one_record_a_line`: a record ends with its line, so
/// that the fault is not reported on a later one.
/// Result: "file:line:column: what is wrong", or "" if none is found.
std::string find_json_fault(const std::filesystem::path& path, bool one_record_a_line);

}  // namespace danlu::data
