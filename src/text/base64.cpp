#include "text/base64.h"

#include <array>
#include <cstdint>

namespace danlu::text {
namespace {

constexpr std::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

}  // namespace

std::string encode_base64(std::string_view bytes) {
  std::string encoded;
  encoded.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t bits = 0;
    for (size_t k = i; k < i + 3; ++k)
      bits = bits << 8 | (k < bytes.size() ? static_cast<unsigned char>(bytes[k]) : 0u);
    for (size_t k = 0; k < 4; ++k) {
      const bool is_filling = i + k > bytes.size();
      encoded += is_filling ? '=' : kDigits[bits >> (18 - 6 * k) & 63];
    }
  }
  return encoded;
}

bool decode_base64(std::string_view written, std::string* bytes) {
  static const std::array<int8_t, 256> kValues = [] {
    std::array<int8_t, 256> values;
    values.fill(-1);
    int8_t next = 0;
    for (const char c : kDigits) values[static_cast<unsigned char>(c)] = next++;
    return values;
  }();
  bytes->clear();
  std::string joined;
  std::string_view encoded = written;
  // MIME and Python's encodebytes break lines.
  constexpr std::string_view kSpace = " \t\r\n";
  if (written.find_first_of(kSpace) != written.npos) {
    joined = written;
    std::erase_if(joined, [&](char c) { return kSpace.find(c) != kSpace.npos; });
    encoded = joined;
  }
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
