#include "text/base64.h"

#include <array>
#include <cstdint>

namespace danlu::text {

bool decode_base64(std::string_view encoded, std::string* bytes) {
  static const std::array<int8_t, 256> kValues = [] {
    std::array<int8_t, 256> values;
    values.fill(-1);
    int8_t next = 0;
    for (const char c :
         std::string_view("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"))
      values[static_cast<unsigned char>(c)] = next++;
    return values;
  }();
  bytes->clear();
  if (encoded.empty() || encoded.size() % 4 != 0) return false;
  const size_t padding = encoded.ends_with("==") ? 2 : encoded.ends_with('=') ? 1 : 0;
  uint32_t bits = 0;
  for (size_t i = 0; i < encoded.size() - padding; ++i) {
    const int8_t value = kValues[static_cast<unsigned char>(encoded[i])];
    if (value < 0) return false;
    bits = bits << 6 | static_cast<uint32_t>(value);
    // Character i completes byte i - i / 4 - 1, but for the first of each four.
    if (i % 4 != 0) *bytes += static_cast<char>(bits >> (6 - 2 * (i % 4)));
  }
  return true;
}

}  // namespace danlu::text
