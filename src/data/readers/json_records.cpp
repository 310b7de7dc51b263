#include "data/readers/json_records.h"

#include <algorithm>
#include <utility>

#include "data/readers/record_limits.h"

namespace danlu::data {
namespace {

constexpr size_t kWindowBytes = 1 << 18;
constexpr std::string_view kJsonSpace = " \t\r\n", kSpaceInLine = " \t\r";

}  // namespace

JsonRecords::JsonRecords(std::unique_ptr<ByteStream> stream) : stream_(std::move(stream)) {}

bool JsonRecords::more() {
  if (ended_) return false;
  const size_t old_size = window_.size(), pending = old_size - at_;
  // Twice as much each time, so that a long record is walked over a few times only.
  const size_t wanted = std::max(kWindowBytes, std::min(pending, kMaxRecordBytes));
  window_.resize(old_size + wanted);
  const size_t got = stream_->read(window_.data() + old_size, wanted);
  window_.resize(old_size + got);
  ended_ = got == 0;
  return !ended_;
}

int JsonRecords::peek_behind(std::string_view space, size_t* at) {
  while (true) {
    *at = std::min(window_.find_first_not_of(space, *at), window_.size());
    if (*at < window_.size()) return static_cast<unsigned char>(window_[*at]);
    if (!more()) return -1;
  }
}

int JsonRecords::peek_behind_space() { return peek_behind(kJsonSpace, &at_); }

bool JsonRecords::next(std::string_view* record) {
  if (over_) return false;
  if (at_ >= kWindowBytes) window_.erase(0, std::exchange(at_, 0));
  const bool is_there = begun_ ? find_record() : find_first_record();
  begun_ = true;
  over_ = !is_there || !take_record(record);
  return !over_;
}

/// Whether, in a text that begins with a list, the list is a line and other lines follow.
bool JsonRecords::is_line_among_others() {
  size_t line_end = window_.find('\n', at_);
  while (line_end == window_.npos && window_.size() - at_ < kWindowBytes && more()) {
    line_end = window_.find('\n', at_);
  }
  if (line_end == window_.npos) return false;
  JsonEvents none;
  JsonWalker walker(std::string_view(window_).substr(0, line_end), at_, /*is_all=*/true, none);
  if (walker.walk() != JsonWalk::kWhole) return false;
  size_t behind = walker.at();
  peek_behind(kSpaceInLine, &behind);
  return behind == line_end && peek_behind(kJsonSpace, &behind) >= 0;
}

bool JsonRecords::find_first_record() {
  if (peek_behind_space() != '[' || is_line_among_others()) return peek_behind_space() >= 0;
  layout_ = Layout::kArray;
  ++at_;
  if (peek_behind_space() != ']') {
    malformed_ = peek_behind_space() < 0;
    return !malformed_;
  }
  ++at_;
  malformed_ = peek_behind_space() >= 0;
  return false;
}

bool JsonRecords::find_record() {
  const int c = peek_behind_space();
  if (layout_ != Layout::kArray) return c >= 0;
  if (c == ',') {
    ++at_;
    return true;
  }
  // At the end of the array, where nothing may follow.
  const bool is_end = c == ']';
  if (is_end) ++at_;
  malformed_ = !is_end || peek_behind_space() >= 0;
  return false;
}

bool JsonRecords::take_record(std::string_view* record) {
  peek_behind_space();
  JsonEvents none;
  while (true) {
    JsonWalker walker(window_, at_, ended_, none);
    const JsonWalk walk = walker.walk();
    const size_t end = walk == JsonWalk::kWhole ? walker.at() : window_.size();
    too_long_ = walk != JsonWalk::kFaulty && end - at_ > kMaxRecordBytes;
    if (too_long_) return false;
    const bool was_ended = ended_;
    if (walk == JsonWalk::kCut && !was_ended) {
      more();
      continue;
    }
    malformed_ = walk != JsonWalk::kWhole || !may_end_at(at_, end);
    if (malformed_) return false;
    *record = std::string_view(window_).substr(at_, end - at_);
    at_ = end;
    return true;
  }
}

bool JsonRecords::may_end_at(size_t begin, size_t end) {
  if (layout_ == Layout::kArray) return true;
  size_t behind = end;
  const int next = peek_behind(kSpaceInLine, &behind);
  const bool is_line =
      (next < 0 || next == '\n') &&
      std::string_view(window_).substr(begin, end - begin).find('\n') == std::string_view::npos;
  if (layout_ == Layout::kUnknown) layout_ = is_line ? Layout::kLines : Layout::kValues;
  if (layout_ == Layout::kLines) return is_line;
  // Scalars are told apart by the space between them.
  const char last = window_[end - 1];
  return last == '}' || last == ']' || last == '"' || behind > end || next < 0 || next == '\n';
}

}  // namespace danlu::data
