#include "text/jinja/python_text.h"

#include <utf8proc.h>

#include <charconv>
#include <cmath>
#include <cstdio>

namespace danlu::text::jinja {

namespace {

bool is_cased(char32_t c) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL ||
         category == UTF8PROC_CATEGORY_LT;
}

bool is_letter(char32_t c) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool is_printable(char32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    case UTF8PROC_CATEGORY_ZS:
      return c == U' ';
    default:
      return true;
  }
}

/// Upper case of one code point; the one expansion that real text contains is ß.
void append_upper(char32_t c, std::string& out) {
  if (c == U'ß') {
    out += "SS";
    return;
  }
  append_utf8(static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))), out);
}

void append_lower(char32_t c, std::string& out) {
  append_utf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))), out);
}

bool contains_code_point(std::string_view set, char32_t wanted) {
  for (size_t i = 0; i < set.size();) {
    if (next_code_point(set, i) == wanted) return true;
  }
  return false;
}

size_t previous_start(std::string_view text, size_t end) {
  size_t start = end - 1;
  while (start > 0 && end - start < 4 && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80)
    --start;
  return start;
}

template <typename Removes>
std::string_view strip_if(std::string_view text, bool left, bool right, const Removes& removes) {
  size_t begin = 0, end = text.size();
  while (left && begin < end) {
    size_t next = begin;
    if (!removes(next_code_point(text, next))) break;
    begin = next;
  }
  while (right && end > begin) {
    const size_t start = previous_start(text, end);
    size_t next = start;
    const char32_t c = next_code_point(text, next);
    if (next != end || !removes(c)) break;
    end = start;
  }
  return text.substr(begin, end - begin);
}

}  // namespace

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  std::string scientific(buffer, end);
  const size_t e = scientific.find('e');
  const int exponent = std::atoi(scientific.c_str() + e + 1);
  if (exponent < -4 || exponent >= 16) return scientific;
  const auto fixed_end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed).ptr;
  std::string fixed(buffer, fixed_end);
  if (fixed.find('.') == std::string::npos) fixed += ".0";
  return fixed;
}

void append_string_repr(std::string_view text, std::string& out) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  out += quote;
  for (size_t i = 0; i < text.size();) {
    const size_t start = i;
    const char32_t c = next_code_point(text, i);
    if (c == static_cast<char32_t>(quote) || c == U'\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == U'\n') {
      out += "\\n";
    } else if (c == U'\r') {
      out += "\\r";
    } else if (c == U'\t') {
      out += "\\t";
    } else if (c >= 0x20 && c < 0x7f) {
      out += static_cast<char>(c);
    } else if (c >= 0x80 && is_printable(c)) {
      out += text.substr(start, i - start);
    } else {
      char escape[12];
      std::snprintf(escape, sizeof escape,
                    c < 0x100     ? "\\x%02x"
                    : c < 0x10000 ? "\\u%04x"
                                  : "\\U%08x",
                    static_cast<unsigned>(c));
      out += escape;
    }
  }
  out += quote;
}

char32_t next_code_point(std::string_view text, size_t& position) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(position);
  if (first < 0x80) {
    ++position;
    return first;
  }
  utf8proc_int32_t c = -1;
  const auto used =
      utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data() + position),
                       static_cast<utf8proc_ssize_t>(text.size() - position), &c);
  if (used <= 0) {
    ++position;
    return 0xFFFD;
  }
  position += static_cast<size_t>(used);
  return static_cast<char32_t>(c);
}

void append_utf8(char32_t c, std::string& out) {
  utf8proc_uint8_t bytes[4];
  const auto count = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), bytes);
  out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(count));
}

bool is_ascii(std::string_view text) {
  for (const char c : text) {
    if (static_cast<unsigned char>(c) >= 0x80) return false;
  }
  return true;
}

size_t code_point_count(std::string_view text) {
  size_t count = 0;
  for (size_t i = 0; i < text.size(); ++count) next_code_point(text, i);
  return count;
}

std::vector<size_t> code_point_offsets(std::string_view text) {
  std::vector<size_t> offsets;
  offsets.reserve(text.size() + 1);
  for (size_t i = 0; i < text.size();) {
    offsets.push_back(i);
    next_code_point(text, i);
  }
  offsets.push_back(text.size());
  return offsets;
}

size_t byte_offset(std::string_view text, int64_t index) {
  size_t at = 0;
  for (; index > 0 && at < text.size(); --index) next_code_point(text, at);
  return at;
}

bool is_python_space(char32_t c) {
  if (c < 0x80) return c == U' ' || (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x1f);
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
         c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

std::string_view strip(std::string_view text, bool left, bool right) {
  return strip_if(text, left, right, is_python_space);
}

std::string_view strip(std::string_view text, std::string_view characters, bool left, bool right) {
  return strip_if(text, left, right,
                  [&](char32_t c) { return contains_code_point(characters, c); });
}

std::string to_upper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) append_upper(next_code_point(text, i), out);
  return out;
}

std::string to_lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) append_lower(next_code_point(text, i), out);
  return out;
}

std::string to_title(std::string_view text) {
  std::string out;
  bool previous_cased = false;
  for (size_t i = 0; i < text.size();) {
    const char32_t c = next_code_point(text, i);
    previous_cased ? append_lower(c, out) : append_upper(c, out);
    previous_cased = is_cased(c);
  }
  return out;
}

std::string jinja_title(std::string_view text) {
  std::string out;
  bool at_start = true;
  for (size_t i = 0; i < text.size();) {
    const char32_t c = next_code_point(text, i);
    at_start ? append_upper(c, out) : append_lower(c, out);
    at_start = is_python_space(c) || c == U'-' || c == U'(' || c == U'{' || c == U'[' || c == U'<';
  }
  return out;
}

std::string to_capitalized(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const bool first = i == 0;
    const char32_t c = next_code_point(text, i);
    first ? append_upper(c, out) : append_lower(c, out);
  }
  return out;
}

namespace {
bool cased_and_unchanged(std::string_view text, utf8proc_int32_t (*fold)(utf8proc_int32_t)) {
  bool any = false;
  for (size_t i = 0; i < text.size();) {
    const char32_t c = next_code_point(text, i);
    if (!is_cased(c)) continue;
    if (fold(static_cast<utf8proc_int32_t>(c)) != static_cast<utf8proc_int32_t>(c)) return false;
    any = true;
  }
  return any;
}
}  // namespace

bool is_upper(std::string_view text) { return cased_and_unchanged(text, utf8proc_toupper); }
bool is_lower(std::string_view text) { return cased_and_unchanged(text, utf8proc_tolower); }

bool is_alpha(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    if (!is_letter(next_code_point(text, i))) return false;
  }
  return !text.empty();
}

bool is_digit(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const char32_t c = next_code_point(text, i);
    if (utf8proc_category(static_cast<utf8proc_int32_t>(c)) != UTF8PROC_CATEGORY_ND) return false;
  }
  return !text.empty();
}

std::string replace_all(std::string_view text, std::string_view from, std::string_view to,
                        int64_t limit) {
  std::string out;
  if (from.empty()) {  // Python puts `to` before every code point and at the end
    size_t i = 0;
    while (limit != 0) {
      out += to;
      --limit;
      if (i >= text.size()) return out;
      const size_t start = i;
      next_code_point(text, i);
      out += text.substr(start, i - start);
    }
    out += text.substr(i);
    return out;
  }
  size_t position = 0;
  for (; limit != 0; --limit) {
    const size_t hit = text.find(from, position);
    if (hit == std::string_view::npos) break;
    out += text.substr(position, hit - position);
    out += to;
    position = hit + from.size();
  }
  out += text.substr(position);
  return out;
}

}  // namespace danlu::text::jinja
