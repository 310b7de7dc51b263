// media/exif.h: the orientation in EXIF data.
#pragma once
#include <cstddef>
#include <optional>
#include <span>

namespace danlu::media {

/// 1 … 8, or nothing: no EXIF, damaged, or without the tag. `needs_prefix`: without "Exif\0\0" in
/// front it is no EXIF (a segment of JPEG holds other things too); otherwise the prefix may stand
/// there.
std::optional<int> exif_orientation(std::span<const std::byte> bytes, bool needs_prefix);

}  // namespace danlu::media
