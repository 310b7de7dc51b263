// fuzz/video_fuzz.cpp: any bytes as a video must give frames or be refused, never crash.
#include <cstdint>
#include <span>

#include "base/error.h"
#include "media/video.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace danlu::media;
  constexpr int64_t kMostPixels = 1 << 14;
  VideoRule rule = VideoRule::llama_factory();
  rule.max_frames = 4;
  try {
    video_frames(std::as_bytes(std::span(data, size)), "fuzz", rule, kMostPixels);
  } catch (const danlu::Error&) {
  }
  return 0;
}
