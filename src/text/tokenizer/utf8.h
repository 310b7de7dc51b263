// text/tokenizer/utf8.h: reading, writing and repairing UTF-8.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace danlu::text {

/// One code point of valid UTF-8 and the bytes it takes.
struct CodePoint {
  char32_t value;
  uint32_t length;
};

/// The code point at text[at]. REQUIRES: text is valid UTF-8 and `at` begins a character.
inline CodePoint decode_utf8(std::string_view text, size_t at) {
  const auto* p = reinterpret_cast<const unsigned char*>(text.data()) + at;
  if (p[0] < 0x80) return {p[0], 1};
  if (p[0] < 0xE0) return {char32_t((p[0] & 0x1F) << 6 | (p[1] & 0x3F)), 2};
  if (p[0] < 0xF0) {
    return {char32_t((p[0] & 0x0F) << 12 | (p[1] & 0x3F) << 6 | (p[2] & 0x3F)), 3};
  }
  return {char32_t((p[0] & 0x07) << 18 | (p[1] & 0x3F) << 12 | (p[2] & 0x3F) << 6 | (p[3] & 0x3F)),
          4};
}

/// The first byte at or after `at` that is not ASCII; text.size() if there is none.
size_t ascii_end(std::string_view text, size_t at);

/// Where the character before text[at] begins. REQUIRES: valid UTF-8, at > 0.
inline size_t previous_char(std::string_view text, size_t at) {
  do --at;
  while ((static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
  return at;
}

void append_utf8(char32_t code_point, std::string& out);

/// Bytes of the well-formed character at text[at]; 0 if ill-formed, then `bad_length` is the length
/// of its maximal subpart (Unicode 3.9, "U+FFFD Substitution of Maximal Subparts"; as WHATWG and
/// Rust). `truncated` is set when the text ends inside a sequence that was well-formed so far.
size_t utf8_char_length(std::string_view text, size_t at, size_t& bad_length, bool& truncated);

bool is_valid_utf8(std::string_view text);

/// `text` itself if it is valid, else a repaired copy kept in `storage`: every maximal ill-formed
/// subpart becomes one U+FFFD.
std::string_view sanitize_utf8(std::string_view text, std::string& storage);

/// Appends `bytes` with ill-formed parts replaced.
void append_lossy(std::string_view bytes, std::string& out);

inline constexpr std::string_view kReplacementUtf8 = "\xEF\xBF\xBD";

}  // namespace danlu::text
