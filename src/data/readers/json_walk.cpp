#include "data/readers/json_walk.h"

#include <bit>
#include <charconv>
#include <cstdint>
#include <cstring>

#include "data/readers/text_encoding.h"
#include "text/tokenizer/utf8.h"

namespace danlu::data {
namespace {

constexpr uint64_t kEachByte = 0x0101010101010101ull, kHighBits = 0x8080808080808080ull;

/// The high bit of every byte that is zero; of bytes above such a one perhaps too.
uint64_t zero_bytes(uint64_t word) { return (word - kEachByte) & ~word & kHighBits; }

bool ends_plain_text(unsigned char c) { return c < 0x20 || c >= 0x80 || c == '"' || c == '\\'; }

/// The first byte at or after `at` that is a quote, a backslash, a control character or not ASCII.
size_t plain_end(std::string_view text, size_t at) {
  static_assert(std::endian::native == std::endian::little);
  for (uint64_t word; at + sizeof word <= text.size(); at += sizeof word) {
    std::memcpy(&word, text.data() + at, sizeof word);
    const uint64_t below_space = (word - 0x20 * kEachByte) & ~word;
    const uint64_t found = (zero_bytes(word ^ '"' * kEachByte) |
                            zero_bytes(word ^ '\\' * kEachByte) | below_space | word) &
                           kHighBits;
    if (found) return at + static_cast<size_t>(std::countr_zero(found)) / 8;
  }
  while (at < text.size() && !ends_plain_text(static_cast<unsigned char>(text[at]))) ++at;
  return at;
}

/// The unit of "\uXXXX" at `at`; -1 if it is none. REQUIRES: six bytes are there.
int32_t unit_at(std::string_view text, size_t at) {
  uint32_t unit = 0;
  const char* begin = text.data() + at + 2;
  if (text[at] != '\\' || text[at + 1] != 'u') return -1;
  const auto [end, error] = std::from_chars(begin, begin + 4, unit, 16);
  return error == std::errc() && end == begin + 4 ? static_cast<int32_t>(unit) : -1;
}

bool is_high_surrogate(int32_t unit) { return unit >= 0xD800 && unit < 0xDC00; }
bool is_low_surrogate(int32_t unit) { return unit >= 0xDC00 && unit < 0xE000; }

JsonWalk skip_escape(std::string_view text, size_t* at) {
  constexpr size_t kUnitBytes = 6;
  const size_t left = text.size() - *at;
  if (left < 2) return JsonWalk::kCut;
  if (text[*at + 1] != 'u') {
    if (!std::strchr("\"\\/bfnrt", text[*at + 1]) || text[*at + 1] == '\0')
      return JsonWalk::kFaulty;
    *at += 2;
    return JsonWalk::kWhole;
  }
  if (left < kUnitBytes) return JsonWalk::kCut;
  const int32_t unit = unit_at(text, *at);
  if (unit < 0 || is_low_surrogate(unit)) return JsonWalk::kFaulty;
  *at += kUnitBytes;
  if (!is_high_surrogate(unit)) return JsonWalk::kWhole;
  if (left < 2 * kUnitBytes) return JsonWalk::kCut;
  if (!is_low_surrogate(unit_at(text, *at))) return JsonWalk::kFaulty;
  *at += kUnitBytes;
  return JsonWalk::kWhole;
}

/// Appends what the escape at raw[at] stands for. Result: how long it is.
size_t append_escape(std::string_view raw, size_t at, std::string* out) {
  switch (raw[at + 1]) {
    case 'b':
      *out += '\b';
      return 2;
    case 'f':
      *out += '\f';
      return 2;
    case 'n':
      *out += '\n';
      return 2;
    case 'r':
      *out += '\r';
      return 2;
    case 't':
      *out += '\t';
      return 2;
    case 'u':
      break;
    default:
      *out += raw[at + 1];
      return 2;
  }
  const int32_t unit = unit_at(raw, at);
  if (!is_high_surrogate(unit)) {
    text::append_utf8(static_cast<char32_t>(unit), *out);
    return 6;
  }
  const int32_t low = unit_at(raw, at + 6);
  text::append_utf8(static_cast<char32_t>(0x10000 + (unit - 0xD800) * 0x400 + (low - 0xDC00)),
                    *out);
  return 12;
}

}  // namespace

JsonWalk skip_json_string(std::string_view text, size_t* at, bool* has_escapes) {
  constexpr size_t kLongestCharacter = 4;
  for (size_t i = *at;;) {
    i = plain_end(text, i);
    if (i == text.size()) return JsonWalk::kCut;
    if (text[i] == '"') {
      *at = i + 1;
      return JsonWalk::kWhole;
    }
    if (text[i] == '\\') {
      *has_escapes = true;
      if (const JsonWalk step = skip_escape(text, &i); step != JsonWalk::kWhole) return step;
      continue;
    }
    const size_t length = utf8_length(text, i);
    if (length < 2) {  // a control character, or no character at all
      const bool is_cut = length == 0 && text.size() - i < kLongestCharacter;
      return is_cut ? JsonWalk::kCut : JsonWalk::kFaulty;
    }
    i += length;
  }
}

std::string unescaped_json(std::string_view raw) {
  std::string out;
  out.reserve(raw.size());
  for (size_t at = 0;;) {
    const size_t escape = std::min(raw.find('\\', at), raw.size());
    out.append(raw, at, escape - at);
    if (escape == raw.size()) return out;
    at = escape + append_escape(raw, escape, &out);
  }
}

}  // namespace danlu::data
