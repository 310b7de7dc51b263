#include "text/tokenizer/utf8.h"

#include <bit>
#include <cstring>

namespace danlu::text {

size_t ascii_end(std::string_view text, size_t at) {
  static_assert(std::endian::native == std::endian::little);
  for (uint64_t word; at + sizeof word <= text.size(); at += sizeof word) {
    std::memcpy(&word, text.data() + at, sizeof word);
    word &= 0x8080808080808080ull;
    if (word) return at + static_cast<size_t>(std::countr_zero(word)) / 8;
  }
  while (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80) ++at;
  return at;
}

void append_utf8(char32_t c, std::string& out) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | c >> 6);
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | c >> 12);
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | c >> 18);
    out += static_cast<char>(0x80 | (c >> 12 & 0x3F));
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  }
}

size_t utf8_char_length(std::string_view text, size_t at, size_t& bad_length, bool& truncated) {
  const auto* p = reinterpret_cast<const unsigned char*>(text.data()) + at;
  const size_t left = text.size() - at;
  truncated = false;
  bad_length = 1;
  const unsigned char lead = p[0];
  if (lead < 0x80) return 1;
  // Second bytes that would be overlong, surrogates or beyond U+10FFFF are not continuations.
  unsigned char low = 0x80, high = 0xBF;
  size_t length;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return 0;
  }
  for (size_t i = 1; i < length; ++i) {
    if (i >= left) {
      bad_length = i;
      truncated = true;
      return 0;
    }
    if (p[i] < low || p[i] > high) {
      bad_length = i;
      return 0;
    }
    low = 0x80;
    high = 0xBF;
  }
  return length;
}

namespace {

/// First ill-formed byte at or after `at`, or text.size().
size_t find_ill_formed(std::string_view text, size_t at) {
  size_t bad = 0;
  bool truncated = false;
  while ((at = ascii_end(text, at)) < text.size()) {
    // Characters that are not ASCII come in runs.
    do {
      const size_t length = utf8_char_length(text, at, bad, truncated);
      if (length == 0) return at;
      at += length;
    } while (at < text.size() && static_cast<unsigned char>(text[at]) >= 0x80);
  }
  return text.size();
}

}  // namespace

bool is_valid_utf8(std::string_view text) { return find_ill_formed(text, 0) == text.size(); }

void append_lossy(std::string_view bytes, std::string& out) {
  size_t at = 0;
  while (true) {
    const size_t bad_at = find_ill_formed(bytes, at);
    out.append(bytes.substr(at, bad_at - at));
    if (bad_at == bytes.size()) return;
    size_t bad_length = 1;
    bool truncated = false;
    utf8_char_length(bytes, bad_at, bad_length, truncated);
    out += kReplacementUtf8;
    at = bad_at + bad_length;
  }
}

std::string_view sanitize_utf8(std::string_view text, std::string& storage) {
  if (is_valid_utf8(text)) return text;
  storage.clear();
  storage.reserve(text.size() + 16);
  append_lossy(text, storage);
  return storage;
}

}  // namespace danlu::text
