// fuzz/picture_fuzz.cpp: any bytes as a picture must be decoded or refused, never crash, and what
// the header promised must come out.
#include <cstdint>
#include <cstdlib>
#include <span>

#include "base/error.h"
#include "media/decode.h"
#include "media/media_error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace danlu::media;
  // Small, so that a run spends its time on kinds of files and not on pixels.
  constexpr int64_t kMostPixels = 1 << 18;
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  try {
    const PictureSize header = picture_size(bytes, "fuzz", kMostPixels);
    const Picture picture = decode_picture(bytes, "fuzz", {Exif::kTranspose, kMostPixels});
    if (picture.size != header.upright()) std::abort();
    uint32_t sum = 0;
    for (int64_t i = 0; i < picture.rgb.size(); ++i) sum += picture.rgb.data()[i];
    static volatile uint32_t sink;
    sink = sum;
  } catch (const danlu::Error&) {
  }
  return 0;
}
