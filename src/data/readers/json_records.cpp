#include "data/readers/json_records.h"

#include <utility>

#include "data/readers/record_limits.h"

namespace danlu::data {
namespace {

bool is_space(int c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

}  // namespace

JsonRecords::JsonRecords(std::unique_ptr<ByteStream> stream) : bytes_(std::move(stream)) {}

int JsonRecords::peek_behind_space() {
  while (is_space(bytes_.peek())) bytes_.take();
  return bytes_.peek();
}

bool JsonRecords::next(std::string* record) {
  record->clear();
  if (malformed_ || too_long_ || !find_record()) return false;
  take_record(record);
  return !malformed_ && !too_long_;
}

bool JsonRecords::find_record() {
  int c = peek_behind_space();
  const bool is_first = !std::exchange(begun_, true);
  if (is_first && c == '[') {
    in_array_ = true;
    bytes_.take();
    c = peek_behind_space();
  } else if (in_array_ && c == ',') {
    bytes_.take();
    c = peek_behind_space();
    // A comma promises another record.
    malformed_ = c == ']';
  } else if (in_array_ && c != ']') {
    malformed_ = true;
  }
  if (in_array_ && c == ']' && !malformed_) {
    bytes_.take();
    malformed_ = peek_behind_space() >= 0;
    in_array_ = false;
    return false;
  }
  if (c < 0) malformed_ |= in_array_;
  return c >= 0 && !malformed_;
}

bool JsonRecords::take(std::string* record) {
  too_long_ = record->size() == kMaxRecordBytes;
  if (!too_long_) record->push_back(bytes_.take());
  return !too_long_;
}

void JsonRecords::take_record(std::string* record) {
  int depth = 0;
  for (int c = bytes_.peek(); c >= 0; c = bytes_.peek()) {
    if (c == '"') {
      take_string(record);
      if (too_long_) return;
    } else {
      const bool ends_scalar = depth == 0 && (is_space(c) || c == ',' || c == ']' || c == '}');
      if (ends_scalar) break;
      if (c == '{' || c == '[') ++depth;
      if (c == '}' || c == ']') --depth;
      if (!take(record)) return;
    }
    const char last = record->back();
    if (depth == 0 && (last == '"' || last == '}' || last == ']')) return;
  }
  // The end of the text inside a record, or no record at all.
  malformed_ |= depth > 0 || record->empty();
}

void JsonRecords::take_string(std::string* record) {
  if (!take(record)) return;
  for (bool escaped = false; bytes_.peek() >= 0;) {
    if (!take(record)) return;
    const char c = record->back();
    if (!escaped && c == '"') return;
    escaped = !escaped && c == '\\';
  }
  malformed_ = true;
}

}  // namespace danlu::data
