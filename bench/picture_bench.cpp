// bench/picture_bench.cpp: decoding and resizing one picture file as a model sees it.
//
//   picture_bench FILE [--rounds 5] [--max_pixels 12845056] [--patches]
//
// From the file's bytes in memory to RGB at the size that a processor with these limits gives; with
// --patches to float32 patches. One thread. Prints one JSON line: the size, and the processor's
// seconds of each round. bench/pictures.py runs it beside PIL.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <ctime>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "flags.h"
#include "media/patches.h"

namespace {

/// Seconds of the processor, which other programs do not lengthen.
double processor_s() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

void time_rounds(const std::string& name, const danlu::media::ImageProcessor& processor,
                 int64_t rounds, bool patches) {
  const danlu::MappedFile file(name);
  std::vector<double> seconds;
  danlu::media::Size size;
  // The first round opens the library.
  for (int64_t round = 0; round <= rounds; ++round) {
    const double begin = processor_s();
    const auto picture = danlu::media::sized_picture(file.bytes(), name, processor);
    if (patches) danlu::media::patches_of({&picture, 1}, processor);
    if (round > 0) seconds.push_back(processor_s() - begin);
    size = picture.size;
  }
  fmt::print("{{\"width\": {}, \"height\": {}, \"seconds\": [{:.6f}]}}\n", size.width, size.height,
             fmt::join(seconds, ", "));
}

}  // namespace

int main(int argc, char** argv) {
  int64_t rounds = 5;
  bool patches = false;
  danlu::media::ImageProcessor processor;
  processor.max_pixels = 12845056;
  const auto words = danlu::bench::parse_flags(
      argc, argv,
      {{"--rounds", danlu::bench::WholeNumber{&rounds}},
       {"--max_pixels", danlu::bench::WholeNumber{&processor.max_pixels, 3136}},
       {"--patches", &patches}},
      1);
  if (words.empty()) danlu::bench::refuse("picture_bench", "which picture?");
  try {
    time_rounds(words[0], processor, rounds, patches);
  } catch (const danlu::Error& error) {
    danlu::bench::refuse("picture_bench", error.what());
  }
}
