// libdanlu_stills.so
#include <exception>
#include <new>

#include "media/stills/plugin/formats.h"

namespace danlu::media {
namespace {

DecodeStatus decode_any(const EncodedPicture& picture, RawPicture& out, std::string& why) {
  switch (picture.format) {
    case PictureFormat::kJpeg:
      return decode_jpeg(picture, out, why);
    case PictureFormat::kPng:
      return decode_png(picture, out, why);
    case PictureFormat::kWebp:
      return decode_webp(picture, out, why);
    case PictureFormat::kGif:
      return decode_gif(picture, out, why);
  }
  return DecodeStatus::kUnsupported;
}

}  // namespace
}  // namespace danlu::media

extern "C" danlu::media::DecodeStatus danlu_stills_decode(
    const danlu::media::EncodedPicture& picture, danlu::media::RawPicture& out, std::string& why) {
  using danlu::media::DecodeStatus;
  try {
    return danlu::media::decode_any(picture, out, why);
  } catch (const std::bad_alloc&) {
    return DecodeStatus::kNoMemory;
  } catch (const std::exception& error) {
    why = error.what();
    return DecodeStatus::kDamaged;
  }
}
