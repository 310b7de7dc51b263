// tests/support/frame_files.h: a video of picture files that lie on disk.
#pragma once
#include <filesystem>
#include <vector>

#include "media/media_file.h"
#include "media/video.h"

namespace danlu::test {

inline media::VideoPatches process_frame_files(const std::vector<std::filesystem::path>& files,
                                               double fps, const media::ImageProcessor& processor,
                                               const media::PreResize& pre_resize = {}) {
  std::vector<MappedFile> maps;
  std::vector<media::NamedBytes> bytes;
  for (const std::filesystem::path& file : files) {
    maps.push_back(media::open_media_file(file));
    bytes.push_back({file.string(), maps.back().bytes()});
  }
  return media::process_frames(bytes, fps, processor, pre_resize);
}

}  // namespace danlu::test
