#include "media/patches.h"

#include <algorithm>
#include <array>

#include "media/media_error.h"
#include "media/media_file.h"
#include "media/named.h"
#include "media/resize.h"

namespace danlu::media {
namespace {

/// The value of each byte, by channel: rounded to float32 after each step, as the processor does.
using ValueTable = std::array<std::array<float, 256>, 3>;

ValueTable value_table(const ImageProcessor& processor) {
  ValueTable table;
  for (size_t c = 0; c < 3; ++c) {
    for (size_t byte = 0; byte < 256; ++byte) {
      auto value = static_cast<float>(byte);
      if (processor.do_rescale) {
        value = static_cast<float>(static_cast<double>(byte) * processor.rescale_factor);
      }
      if (processor.do_normalize) value = (value - processor.mean[c]) / processor.std[c];
      table[c][byte] = value;
    }
  }
  return table;
}

/// The patch whose upper left pixel is (x, y) of its frames.
float* write_patch(std::span<const Picture* const> frames, int64_t x, int64_t y, int64_t side,
                   const ValueTable& table, float* to) {
  const int64_t row_bytes = frames[0]->size.width * 3;
  for (size_t c = 0; c < 3; ++c) {
    const float* const values = table[c].data();
    for (const Picture* frame : frames) {
      const uint8_t* row = frame->rgb.data() + y * row_bytes + 3 * x + static_cast<int64_t>(c);
      for (int64_t i = 0; i < side; ++i, row += row_bytes) {
        for (int64_t j = 0; j < side; ++j) *to++ = values[row[3 * j]];
      }
    }
  }
  return to;
}

float* write_frames(std::span<const Picture* const> frames, const Grid& grid,
                    const ImageProcessor& processor, const ValueTable& table, float* to) {
  const int64_t merge = processor.merge_size, side = processor.patch_size;
  for (int64_t cell_y = 0; cell_y < grid.h; cell_y += merge) {
    for (int64_t cell_x = 0; cell_x < grid.w; cell_x += merge) {
      for (int64_t y = cell_y; y < cell_y + merge; ++y) {
        for (int64_t x = cell_x; x < cell_x + merge; ++x) {
          to = write_patch(frames, x * side, y * side, side, table, to);
        }
      }
    }
  }
  return to;
}

}  // namespace

Patches patches_of(std::span<const Picture> frames, const ImageProcessor& processor) {
  const Size size = frames[0].size;
  for (const Picture& frame : frames) {
    if (frame.size != size || size.width % processor.cell() || size.height % processor.cell()) {
      throw MediaError(
          MediaFault::kBadShape,
          tr("a frame of {} x {} pixels among frames of {} x {}, cut into cells of {}",
             frame.size.width, frame.size.height, size.width, size.height, processor.cell()));
    }
  }
  const auto together = static_cast<size_t>(processor.temporal_patch_size);
  Patches out;
  out.grid = {static_cast<int64_t>((frames.size() + together - 1) / together),
              size.height / processor.patch_size, size.width / processor.patch_size};
  out.values.resize(static_cast<size_t>(out.grid.patches() * processor.patch_values()));
  const ValueTable table = value_table(processor);
  float* to = out.values.data();
  std::vector<const Picture*> group(together);
  for (size_t begin = 0; begin < frames.size(); begin += together) {
    for (size_t i = 0; i < together; ++i) {
      group[i] = &frames[std::min(begin + i, frames.size() - 1)];
    }
    to = write_frames(group, out.grid, processor, table, to);
  }
  return out;
}

Picture sized_picture(std::span<const std::byte> bytes, const std::string& name,
                      const ImageProcessor& processor, const PreResize& pre_resize,
                      const DecodeOptions& options) {
  // Before anything is decoded: a shape that is refused costs nothing.
  const PictureSize header = picture_size(bytes, name, options.max_pixels);
  const Size seen = options.exif == Exif::kTranspose ? header.upright() : header.stored;
  const auto steps = named(name, [&] { return resize_steps(seen, processor, pre_resize); });
  return sized_picture(decode_raw(bytes, name, options), steps, pre_resize);
}

Picture sized_picture(RawPicture raw, std::span<const ResizeStep> steps,
                      const PreResize& pre_resize) {
  auto step = steps.begin();
  for (; step != steps.end() && !step->in_rgb; ++step) {
    raw = resized(std::move(raw), step->to, step->filter);
  }
  const bool on_white = pre_resize.rule == PreResizeRule::kQwenUtils;
  Picture picture = to_rgb(std::move(raw), on_white ? Alpha::kOnWhite : Alpha::kDropped);
  for (; step != steps.end(); ++step) picture = resized(picture, step->to, step->filter);
  return picture;
}

Patches process_picture(std::span<const std::byte> bytes, const std::string& name,
                        const ImageProcessor& processor, const PreResize& pre_resize,
                        const DecodeOptions& options) {
  const Picture picture = sized_picture(bytes, name, processor, pre_resize, options);
  return patches_of({&picture, 1}, processor);
}

Patches process_picture(const std::filesystem::path& file, const ImageProcessor& processor,
                        const PreResize& pre_resize, const DecodeOptions& options) {
  const MappedFile map = open_media_file(file);
  return process_picture(map.bytes(), file.string(), processor, pre_resize, options);
}

Grid grid_of_file(const std::filesystem::path& file, const ImageProcessor& processor,
                  const PreResize& pre_resize, const DecodeOptions& options) {
  const MappedFile map = open_media_file(file);
  return grid_of_bytes(map.bytes(), file.string(), processor, pre_resize, options);
}

Grid grid_of_bytes(std::span<const std::byte> bytes, const std::string& name,
                   const ImageProcessor& processor, const PreResize& pre_resize,
                   const DecodeOptions& options) {
  const PictureSize header = picture_size(bytes, name, options.max_pixels);
  const Size seen = options.exif == Exif::kTranspose ? header.upright() : header.stored;
  return named(name, [&] { return grid_of(seen.width, seen.height, processor, pre_resize); });
}

}  // namespace danlu::media
