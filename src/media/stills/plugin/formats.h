// media/stills/plugin/formats.h: one decoder for each format; all as DecodePicture, but may throw.
#pragma once
#include "media/stills/decoder.h"

namespace danlu::media {

DecodePicture decode_jpeg, decode_png, decode_webp, decode_gif;

}  // namespace danlu::media
