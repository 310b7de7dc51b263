#include "media/exif.h"

#include <string_view>

#include "media/bytes.h"

namespace danlu::media {

std::optional<int> exif_orientation(std::span<const std::byte> bytes, bool needs_prefix) {
  if (text_at(bytes, 0, 6) == std::string_view("Exif\0\0", 6)) {
    bytes = bytes.subspan(6);
  } else if (needs_prefix) {
    return std::nullopt;
  }
  const auto order = text_at(bytes, 0, 2);
  if (order != "II" && order != "MM") return std::nullopt;
  const bool little = order == "II";
  const auto word = [&](size_t at) { return little ? little16(bytes, at) : big16(bytes, at); };
  const size_t directory = little ? little32(bytes, 4) : big32(bytes, 4);
  if (word(2) != 42 || directory > bytes.size()) return std::nullopt;
  constexpr uint32_t kOrientationTag = 0x0112, kShort = 3;
  const size_t count = word(directory);
  for (size_t i = 0; i < count; ++i) {
    const size_t entry = directory + 2 + 12 * i;
    if (entry + 12 > bytes.size()) break;
    if (word(entry) != kOrientationTag || word(entry + 2) != kShort) continue;
    const uint32_t value = word(entry + 8);
    if (value >= 1 && value <= 8) return static_cast<int>(value);
  }
  return std::nullopt;
}

}  // namespace danlu::media
