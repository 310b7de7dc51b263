// media/picture_end.h: whether a picture's file is whole.
#pragma once
#include <cstddef>
#include <span>
#include <string>

#include "media/picture_size.h"

namespace danlu::media {

/// Finds whatever would keep decode_picture from giving pixels. A plain JPEG's tables are read, but
/// not its pixels: their damage shows in the picture and is no error. A PNG's checksums are
/// compared. PNG, progressive JPEG, WebP and GIF are decoded, after their structure was followed to
/// the end (for GIF: the end of its first frame). REQUIRES: picture_size accepted `bytes` and gave
/// `format`. Errors: MediaError kTruncated, kDamaged; those of decode_picture.
void require_whole_picture(std::span<const std::byte> bytes, PictureFormat format,
                           const std::string& name);

}  // namespace danlu::media
