// media/video/reader.h: what libdanlu_video.so does: frames of a video decoded by libavformat,
// libavcodec and libswscale, from bytes alone. It throws nothing, and opens no other file and no
// address.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "media/raw_picture.h"
#include "media/sampling.h"
#include "media/stills/decoder.h"

namespace danlu::media {

/// Goes once through a video, from its first frame on.
class VideoReader {
 public:
  virtual ~VideoReader() = default;
  virtual const VideoFacts& facts() const = 0;
  /// Decodes the next frame. kDone with is_there() false: there is none. Otherwise `why` is set.
  virtual DecodeStatus next(std::string& why) = 0;
  virtual bool is_there() const = 0;
  /// The decoded frame as RGB. REQUIRES: is_there().
  virtual DecodeStatus picture(Picture& out, std::string& why) = 0;
};

/// What danlu_video_open is: `out` is a new reader (the caller deletes it) or null, and then `why`
/// is set. `bytes` must outlive it. Frames with more than max_pixels: kUnsupported with why "too
/// large".
using OpenVideo = DecodeStatus(const uint8_t* bytes, size_t num_bytes, int64_t max_pixels,
                               VideoReader*& out, std::string& why);

}  // namespace danlu::media
