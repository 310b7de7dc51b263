#include <webp/decode.h>
#include <webp/demux.h>

#include <cstring>
#include <memory>

#include "media/stills/plugin/formats.h"

namespace danlu::media {
namespace {

DecodeStatus status_of(VP8StatusCode code, std::string& why) {
  switch (code) {
    case VP8_STATUS_OK:
      return DecodeStatus::kDone;
    case VP8_STATUS_OUT_OF_MEMORY:
      return DecodeStatus::kNoMemory;
    case VP8_STATUS_NOT_ENOUGH_DATA:
    case VP8_STATUS_SUSPENDED:
      why = "the file ends too early";
      return DecodeStatus::kTruncated;
    case VP8_STATUS_UNSUPPORTED_FEATURE:
      why = "a feature that libwebp does not know";
      return DecodeStatus::kUnsupported;
    default:
      why = "libwebp cannot decode it";
      return DecodeStatus::kDamaged;
  }
}

DecodeStatus decode_still(const EncodedPicture& picture, bool has_alpha, RawPicture& out,
                          std::string& why) {
  out = RawPicture(has_alpha ? PixelMode::kRgba : PixelMode::kRgb, picture.size);
  WebPDecoderConfig config;
  if (!WebPInitDecoderConfig(&config)) return DecodeStatus::kUnsupported;
  config.output.colorspace = has_alpha ? MODE_RGBA : MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA.rgba = out.bytes.data();
  config.output.u.RGBA.stride = static_cast<int>(picture.size.width * bytes_per_pixel(out.mode));
  config.output.u.RGBA.size = static_cast<size_t>(out.bytes.size());
  const VP8StatusCode code = WebPDecode(picture.bytes, picture.num_bytes, &config);
  WebPFreeDecBuffer(&config.output);
  return status_of(code, why);
}

/// The first frame on its canvas.
DecodeStatus decode_animation(const EncodedPicture& picture, RawPicture& out, std::string& why) {
  WebPAnimDecoderOptions options;
  if (!WebPAnimDecoderOptionsInit(&options)) return DecodeStatus::kUnsupported;
  options.color_mode = MODE_RGBA;
  const WebPData data{picture.bytes, picture.num_bytes};
  const std::unique_ptr<WebPAnimDecoder, void (*)(WebPAnimDecoder*)> decoder(
      WebPAnimDecoderNew(&data, &options), WebPAnimDecoderDelete);
  uint8_t* frame = nullptr;
  int timestamp_ms = 0;
  if (!decoder || !WebPAnimDecoderGetNext(decoder.get(), &frame, &timestamp_ms)) {
    return status_of(VP8_STATUS_BITSTREAM_ERROR, why);
  }
  const uint32_t flags =
      WebPDemuxGetI(WebPAnimDecoderGetDemuxer(decoder.get()), WEBP_FF_FORMAT_FLAGS);
  out = RawPicture(PixelMode::kRgba, picture.size);
  std::memcpy(out.bytes.data(), frame, static_cast<size_t>(out.bytes.size()));
  if (!(flags & ALPHA_FLAG)) {
    // Without alpha the canvas outside of the frame is as opaque as the frame.
    for (int64_t i = 3; i < out.bytes.size(); i += 4) out.bytes.data()[i] = 255;
  }
  return DecodeStatus::kDone;
}

}  // namespace

DecodeStatus decode_webp(const EncodedPicture& picture, RawPicture& out, std::string& why) {
  WebPBitstreamFeatures features;
  const VP8StatusCode code = WebPGetFeatures(picture.bytes, picture.num_bytes, &features);
  if (code != VP8_STATUS_OK) return status_of(code, why);
  if (Size{features.width, features.height} != picture.size) {
    why = "its header contradicts itself";
    return DecodeStatus::kDamaged;
  }
  return features.has_animation ? decode_animation(picture, out, why)
                                : decode_still(picture, features.has_alpha != 0, out, why);
}

}  // namespace danlu::media
