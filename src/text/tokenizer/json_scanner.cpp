#include "text/tokenizer/json_scanner.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/json_text.h"
#include "text/tokenizer/utf8.h"

namespace danlu::text {

JsonScanner::JsonScanner(std::string_view text, std::string origin)
    : text_(text), origin_(std::move(origin)) {
  if (text_.starts_with("\xEF\xBB\xBF")) at_ = 3;
}

void JsonScanner::fail(const std::string& what) const {
  const std::string_view before = text_.substr(0, std::min(at_, text_.size()));
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const size_t line_start = before.rfind('\n') + 1;  // npos + 1 == 0
  throw ModelError(tr("{}:{}:{}: {}", origin_, line, before.size() - line_start + 1, what));
}

void JsonScanner::skip_space() {
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c != ' ' && c != '\n' && c != '\r' && c != '\t') return;
    ++at_;
  }
}

char JsonScanner::peek() {
  skip_space();
  return at_ < text_.size() ? text_[at_] : '\0';
}

void JsonScanner::open(char bracket, const char* what) {
  if (peek() != bracket) fail(tr("expected {}", what));
  ++at_;
}

bool JsonScanner::close_if(char bracket) {
  if (peek() != bracket) return false;
  ++at_;
  return true;
}

bool JsonScanner::more(char bracket) {
  const char c = peek();
  if (c != ',' && c != bracket) {
    fail(at_ >= text_.size() ? "the file ends inside a value; it may be truncated"
                             : tr("expected ',' or '{}'", bracket));
  }
  ++at_;
  return c == ',';
}

void JsonScanner::expect(char c) {
  if (peek() != c) fail(tr("expected '{}'", c));
  ++at_;
}

uint32_t JsonScanner::hex4() {
  uint32_t value = 0;
  if (at_ + 4 > text_.size()) fail("the file ends inside a \\u escape");
  const char* begin = text_.data() + at_;
  const auto [end, error] = std::from_chars(begin, begin + 4, value, 16);
  if (error != std::errc() || end != begin + 4) fail("a \\u escape needs four hexadecimal digits");
  at_ += 4;
  return value;
}

void JsonScanner::unescape(std::string& out) {
  const char c = at_ < text_.size() ? text_[at_++] : '\0';
  switch (c) {
    case '"':
    case '\\':
    case '/':
      out += c;
      return;
    case 'b':
      out += '\b';
      return;
    case 'f':
      out += '\f';
      return;
    case 'n':
      out += '\n';
      return;
    case 'r':
      out += '\r';
      return;
    case 't':
      out += '\t';
      return;
    case 'u':
      break;
    default:
      fail("unknown escape in a string");
  }
  uint32_t unit = hex4();
  if (unit >= 0xD800 && unit < 0xDC00 && text_.substr(at_, 2) == "\\u") {
    at_ += 2;
    const uint32_t low = hex4();
    if (low >= 0xDC00 && low < 0xE000) {
      append_utf8(0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00), out);
      return;
    }
    out += kReplacementUtf8;
    unit = low;
  }
  if (unit >= 0xD800 && unit < 0xE000) {
    out += kReplacementUtf8;
  } else {
    append_utf8(unit, out);
  }
}

std::string_view JsonScanner::string(std::string& storage) {
  if (peek() != '"') fail("expected a string");
  const size_t begin = ++at_;
  bool ascii = true, plain = true;
  storage.clear();
  size_t copied = begin;
  while (true) {
    if (at_ >= text_.size()) fail("the file ends inside a string; it may be truncated");
    const auto c = static_cast<unsigned char>(text_[at_]);
    if (c == '"') break;
    if (c >= 0x80) ascii = false;
    if (c < 0x20) fail("a control character in a string must be written as an escape");
    ++at_;
    if (c == '\\') {
      plain = false;
      storage.append(text_.substr(copied, at_ - 1 - copied));
      unescape(storage);
      copied = at_;
    }
  }
  const size_t end = at_++;
  if (plain && (ascii || is_valid_utf8(text_.substr(begin, end - begin)))) {
    return text_.substr(begin, end - begin);
  }
  storage.append(text_.substr(copied, end - copied));
  if (!ascii && !is_valid_utf8(storage)) {
    std::string repaired;
    append_lossy(storage, repaired);
    storage = std::move(repaired);
  }
  return storage;
}

int64_t JsonScanner::integer() {
  skip_space();
  int64_t value = 0;
  const char* begin = text_.data() + at_;
  const char* limit = text_.data() + text_.size();
  const auto [end, error] = std::from_chars(begin, limit, value);
  if (error != std::errc() || end == begin ||
      (end < limit && (*end == '.' || *end == 'e' || *end == 'E'))) {
    fail("expected an integer");
  }
  at_ += static_cast<size_t>(end - begin);
  return value;
}

double JsonScanner::number() {
  skip_space();
  double value = 0;
  const char* begin = text_.data() + at_;
  const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), value);
  if (error != std::errc() || end == begin) fail("expected a number");
  at_ += static_cast<size_t>(end - begin);
  return value;
}

std::string_view JsonScanner::raw() {
  peek();
  const size_t begin = at_;
  size_t depth = 0;
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c == '"') {
      for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) {
        if (text_[at_] == '\\') ++at_;
      }
      if (at_ >= text_.size()) break;
      ++at_;
    } else if (c == '{' || c == '[') {
      if (++depth > kMaxJsonDepth) {
        fail(tr("values are nested more than {} deep", kMaxJsonDepth));
      }
      ++at_;
      continue;
    } else if (c == '}' || c == ']') {
      if (depth == 0) break;
      ++at_;
      --depth;
    } else if (depth == 0 && (c == ',' || c == ' ' || c == '\n' || c == '\r' || c == '\t')) {
      break;
    } else {
      ++at_;
      if (depth == 0) continue;
    }
    if (depth == 0) return text_.substr(begin, at_ - begin);
  }
  if (depth > 0 || at_ == begin) fail("the file ends inside a value; it may be truncated");
  return text_.substr(begin, at_ - begin);
}

Json JsonScanner::value() {
  peek();
  const size_t begin = at_;
  const std::string_view span = raw();
  try {
    return parse_json(span, origin_);
  } catch (const DataError&) {
    at_ = begin;
    fail("not valid JSON");
  }
}

void JsonScanner::finish() {
  if (peek() != '\0' || at_ < text_.size()) fail("unexpected text after the end of the document");
}

}  // namespace danlu::text
