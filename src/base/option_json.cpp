#include "base/option_json.h"

#include <cstddef>
#include <cstdint>

namespace danlu::option_text {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

uint32_t hex4(std::string_view digits) {
  return static_cast<uint32_t>(std::stoul(std::string(digits.substr(0, 4)), nullptr, 16));
}

void append_utf8(std::string& out, uint32_t beyond_bmp) {
  out += static_cast<char>(0xF0 | (beyond_bmp >> 18));
  for (const int shift : {12, 6, 0})
    out += static_cast<char>(0x80 | ((beyond_bmp >> shift) & 0x3F));
}

/// Copies the string that begins at `at` (a quote) and returns the position after it.
size_t copy_string(std::string_view json, size_t at, std::string& out) {
  out += json[at++];
  while (json[at] != '"') {
    if (json[at] != '\\') {
      out += json[at++];
      continue;
    }
    const uint32_t high = json[at + 1] == 'u' ? hex4(json.substr(at + 2)) : 0;
    if (high >= 0xD800 && high < 0xDC00) {
      const uint32_t low = hex4(json.substr(at + 8));
      append_utf8(out, 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00));
      at += 12;
    } else {
      out += json.substr(at, 2);
      at += 2;
    }
  }
  out += json[at++];
  return at;
}

/// A key and its colon share a line in YAML: the line breaks between them go after the colon.
void append_colon(std::string& out) {
  size_t breaks = 0;
  while (!out.empty() && (out.back() == ' ' || out.back() == '\n')) {
    breaks += out.back() == '\n';
    out.pop_back();
  }
  out += ": " + std::string(breaks, '\n');
}

}  // namespace

std::string json_as_yaml(std::string_view json) {
  if (json.starts_with(kByteOrderMark)) json.remove_prefix(kByteOrderMark.size());
  std::string out;
  for (size_t at = 0; at < json.size();) {
    const char c = json[at];
    if (c == '"') {
      at = copy_string(json, at, out);
      continue;
    }
    if (c == ':') {
      append_colon(out);
    } else if (c == '\t' || c == '\r') {
      out += ' ';
    } else {
      out += c;
    }
    ++at;
  }
  return out;
}

}  // namespace danlu::option_text
