// media/patches.h: pixels of pictures and frames as what a vision tower reads.
#pragma once
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "media/decode.h"
#include "media/grid.h"
#include "media/processor.h"

namespace danlu::media {

/// values: float32 [grid.patches(), processor.patch_values()]. The patches of a cell of merge_size
/// x merge_size stand together, cells from left to right, then down, then along time. Inside a
/// patch: channel, frame, row, column.
struct Patches {
  Grid grid;
  std::vector<float> values;
};

/// `frames`: of one size, whose sides are multiples of processor.cell(); a picture is one frame.
/// The last one is repeated up to a multiple of temporal_patch_size. REQUIRES: one or more. Errors:
/// MediaError kBadShape.
Patches patches_of(std::span<const Picture> frames, const ImageProcessor& processor);

/// The picture at the size that the model sees. `name` stands in errors.
/// Errors: as decode_raw and resize_steps, the latter with the name in front.
Picture sized_picture(std::span<const std::byte> bytes, const std::string& name,
                      const ImageProcessor& processor, const PreResize& pre_resize = {},
                      const DecodeOptions& options = {});

/// The same of a picture that is decoded already. `steps`: for its size.
Picture sized_picture(RawPicture raw, std::span<const ResizeStep> steps,
                      const PreResize& pre_resize);

/// patches_of(sized_picture(…)).
Patches process_picture(std::span<const std::byte> bytes, const std::string& name,
                        const ImageProcessor& processor, const PreResize& pre_resize = {},
                        const DecodeOptions& options = {});
/// The same from a file. Errors: also MediaError kMissing.
Patches process_picture(const std::filesystem::path& file, const ImageProcessor& processor,
                        const PreResize& pre_resize = {}, const DecodeOptions& options = {});

/// The grid that process_picture will give, from the file's header alone. Errors: as picture_size
/// and grid_of.
Grid grid_of_file(const std::filesystem::path& file, const ImageProcessor& processor,
                  const PreResize& pre_resize = {}, const DecodeOptions& options = {});
Grid grid_of_bytes(std::span<const std::byte> bytes, const std::string& name,
                   const ImageProcessor& processor, const PreResize& pre_resize = {},
                   const DecodeOptions& options = {});

}  // namespace danlu::media
