#include "data/readers/json_records.h"

#include <utility>

namespace danlu::data {
namespace {

constexpr size_t kChunkBytes = 1 << 18;

bool is_space(int c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

}  // namespace

JsonRecords::JsonRecords(std::unique_ptr<ByteStream> stream)
    : stream_(std::move(stream)), buffer_(kChunkBytes, '\0') {}

int JsonRecords::peek() {
  if (at_ == size_) {
    size_ = stream_->read(buffer_.data(), buffer_.size());
    at_ = 0;
    if (size_ == 0) return -1;
  }
  return static_cast<unsigned char>(buffer_[at_]);
}

int JsonRecords::peek_behind_space() {
  while (is_space(peek())) ++at_;
  return peek();
}

bool JsonRecords::next(std::string* record) {
  record->clear();
  if (malformed_ || !find_record()) return false;
  take_record(record);
  return !malformed_;
}

bool JsonRecords::find_record() {
  int c = peek_behind_space();
  const bool is_first = !std::exchange(begun_, true);
  if (is_first && c == '[') {
    in_array_ = true;
    ++at_;
    c = peek_behind_space();
  } else if (in_array_ && c == ',') {
    ++at_;
    c = peek_behind_space();
    // A comma promises another record.
    malformed_ = c == ']';
  } else if (in_array_ && c != ']') {
    malformed_ = true;
  }
  if (in_array_ && c == ']' && !malformed_) {
    ++at_;
    malformed_ = peek_behind_space() >= 0;
    in_array_ = false;
    return false;
  }
  if (c < 0) malformed_ |= in_array_;
  return c >= 0 && !malformed_;
}

void JsonRecords::take_record(std::string* record) {
  int depth = 0;
  for (int c = peek(); c >= 0; c = peek()) {
    if (c == '"') {
      take_string(record);
    } else {
      const bool ends_scalar = depth == 0 && (is_space(c) || c == ',' || c == ']' || c == '}');
      if (ends_scalar) break;
      if (c == '{' || c == '[') ++depth;
      if (c == '}' || c == ']') --depth;
      record->push_back(buffer_[at_++]);
    }
    const char last = record->back();
    if (depth == 0 && (last == '"' || last == '}' || last == ']')) return;
  }
  // The end of the text inside a record, or no record at all.
  malformed_ |= depth > 0 || record->empty();
}

void JsonRecords::take_string(std::string* record) {
  record->push_back(buffer_[at_++]);
  for (bool escaped = false; peek() >= 0;) {
    const char c = buffer_[at_++];
    record->push_back(c);
    if (!escaped && c == '"') return;
    escaped = !escaped && c == '\\';
  }
  malformed_ = true;
}

}  // namespace danlu::data
