// media/processor.h: how a picture becomes what the model reads: the processor that stands beside
// the model, and what training tools do to pictures before it.
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "media/grid.h"
#include "media/smart_resize.h"

namespace danlu::media {

/// Where a pixel of a resized picture comes from.
enum class Filter { kNearest, kBicubic };

/// preprocessor_config.json of Qwen2-VL and Qwen2.5-VL. Pixels become (x * rescale_factor - mean) /
/// std.
struct ImageProcessor {
  int64_t patch_size = 14;          ///< pixels
  int64_t temporal_patch_size = 2;  ///< frames of a patch
  int64_t merge_size = 2;           ///< patches of a side that become one token
  int64_t min_pixels = 56 * 56;     ///< an area
  int64_t max_pixels = 28 * 28 * 1280;
  std::array<float, 3> mean = {0.48145466f, 0.4578275f, 0.40821073f};
  std::array<float, 3> std = {0.26862954f, 0.26130258f, 0.27577711f};
  bool do_resize = true;  ///< false: sides must be multiples of cell() already
  bool do_rescale = true;
  bool do_normalize = true;
  double rescale_factor = 1.0 / 255;
  Filter filter = Filter::kBicubic;

  /// Pixels of a side that become one token.
  int64_t cell() const { return patch_size * merge_size; }
  /// Values of a patch.
  int64_t patch_values() const { return 3 * temporal_patch_size * patch_size * patch_size; }
  bool operator==(const ImageProcessor&) const = default;
};

/// Reads the JSON of preprocessor_config.json, or the image_processor of processor_config.json.
/// Areas under min_pixels and max_pixels win over those under `size` (shortest_edge and
/// longest_edge, which are areas too, or min_pixels and max_pixels). Keys that are absent have the
/// defaults above. Errors: ModelError "<origin>: <key> …" for a value that is none or that is not
/// supported.
ImageProcessor parse_image_processor(const Json& config, const std::string& origin);

/// Reads from a model's directory the image_processor of processor_config.json if it has one, else
/// preprocessor_config.json. Errors: ModelError as above, or if neither file is there; IoError.
ImageProcessor read_image_processor(const std::filesystem::path& directory);

/// What is done to a picture before the processor, by the rules of a tool.
enum class PreResizeRule {
  kNone,
  kQwenUtils,     ///< qwen_vl_utils: RGBA on white; its size replaces the processor's
  kLlamaFactory,  ///< since 0.9.2: max_pixels, then min_pixels, bicubic
  kMindSpeed20,   ///< MindSpeed-MM 2.0, LLaMA-Factory 0.9.1: max_pixels (image_resolution), nearest
  kMindSpeed21,   ///< MindSpeed-MM 2.1: max_pixels, then min_pixels, nearest
};

struct PreResize {
  PreResizeRule rule = PreResizeRule::kNone;
  int64_t min_pixels = 0;  ///< areas; read by the rules that have them
  int64_t max_pixels = 0;

  static PreResize qwen_utils(int64_t min_pixels = 4 * 784, int64_t max_pixels = 16384 * 784) {
    return {PreResizeRule::kQwenUtils, min_pixels, max_pixels};
  }
  static PreResize llama_factory(int64_t min_pixels = 32 * 32, int64_t max_pixels = 768 * 768) {
    return {PreResizeRule::kLlamaFactory, min_pixels, max_pixels};
  }
  static PreResize mindspeed20(int64_t image_resolution) {
    return {PreResizeRule::kMindSpeed20, 0, image_resolution};
  }
  static PreResize mindspeed21(int64_t min_pixels, int64_t max_pixels) {
    return {PreResizeRule::kMindSpeed21, min_pixels, max_pixels};
  }
  bool operator==(const PreResize&) const = default;
};

/// One of the resizes between the file and the patches.
struct ResizeStep {
  Size to;
  Filter filter = Filter::kBicubic;
  bool in_rgb =
      true;  ///< false: before the picture is made RGB, so a palette is resized by its indices
};

/// What the tool does to a picture of `from` pixels before the processor, in order; resizes that
/// change nothing are left out. Errors: MediaError kBadShape (ratio, a side of 0).
std::vector<ResizeStep> tool_steps(Size from, const ImageProcessor& processor,
                                   const PreResize& pre_resize);

/// The size that the processor makes of what tool_steps left. Errors: MediaError kBadShape (ratio,
/// no multiple of cell() without do_resize).
Size processor_size(Size from, const ImageProcessor& processor, const PreResize& pre_resize);

/// The steps of tool_steps, then processor_size's. Throws what either throws.
std::vector<ResizeStep> resize_steps(Size from, const ImageProcessor& processor,
                                     const PreResize& pre_resize);

/// The grid of a picture of width x height pixels: all that is needed of the file is its header.
/// Errors: as resize_steps.
Grid grid_of(int64_t width, int64_t height, const ImageProcessor& processor,
             const PreResize& pre_resize = {});

}  // namespace danlu::media
