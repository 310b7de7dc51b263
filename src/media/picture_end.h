// media/picture_end.h: whether a picture's file is whole.
#pragma once
#include <cstddef>
#include <span>
#include <string>

#include "media/picture_size.h"

namespace danlu::media {

/// Whatever would keep decode_picture from giving pixels is found. Of a plain JPEG the tables are
/// read; its pixels are not looked at: their damage shows and is no error. A PNG's checksums
/// are compared; like a progressive JPEG, a WebP and a GIF it is decoded, after its structure was
/// followed to the end (of GIF: of its first frame). REQUIRES: picture_size accepted `bytes` and
/// gave `format`. Errors: MediaError kTruncated, kDamaged; those of decode_picture.
void require_whole_picture(std::span<const std::byte> bytes, PictureFormat format,
                           const std::string& name);

}  // namespace danlu::media
