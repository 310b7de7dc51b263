// media/picture_end.h: whether the end of a picture's file is there.
#pragma once
#include <cstddef>
#include <span>
#include <string>

#include "media/picture_size.h"

namespace danlu::media {

/// Follows the file's structure to its end (of GIF: of its first frame); nothing is decoded, so
/// damage within the pixels is not seen. REQUIRES: picture_size accepted `bytes` and gave `format`.
/// Errors: MediaError kTruncated.
void require_picture_end(std::span<const std::byte> bytes, PictureFormat format,
                         const std::string& name);

}  // namespace danlu::media
