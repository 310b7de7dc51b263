// media/bytes.h: numbers and words at a place of a file's bytes; what lies after its end is 0 or
// cut.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace danlu::media {

inline uint32_t byte_at(std::span<const std::byte> bytes, size_t at) {
  return at < bytes.size() ? std::to_integer<uint32_t>(bytes[at]) : 0;
}
inline uint32_t big16(std::span<const std::byte> bytes, size_t at) {
  return byte_at(bytes, at) << 8 | byte_at(bytes, at + 1);
}
inline uint32_t big32(std::span<const std::byte> bytes, size_t at) {
  return big16(bytes, at) << 16 | big16(bytes, at + 2);
}
inline uint32_t little16(std::span<const std::byte> bytes, size_t at) {
  return byte_at(bytes, at) | byte_at(bytes, at + 1) << 8;
}
inline uint32_t little32(std::span<const std::byte> bytes, size_t at) {
  return little16(bytes, at) | little16(bytes, at + 2) << 16;
}
inline std::string_view text_at(std::span<const std::byte> bytes, size_t at, size_t length) {
  if (at >= bytes.size()) return {};
  return {reinterpret_cast<const char*>(bytes.data()) + at, std::min(length, bytes.size() - at)};
}

}  // namespace danlu::media
