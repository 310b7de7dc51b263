#include "media/processor.h"

#include <algorithm>
#include <cmath>

#include "media/media_error.h"

namespace danlu::media {
namespace {

/// Above it products of sides and areas would need more than 64 bits somewhere.
constexpr int64_t kLargestArea = int64_t{1} << 40;

class ConfigReader {
 public:
  ConfigReader(const Json& config, const std::string& origin) : config_(config), origin_(origin) {
    if (!config.is_object()) {
      throw ModelError(tr("{}: the picture processor must be an object", origin));
    }
  }

  template <typename T>
  void read(const char* key, T& into) const {
    if (const auto value = get<T>(config_, key)) into = *value;
  }

  void read_whole(const char* key, int64_t& into, int64_t least, int64_t most) const {
    read_whole_of(config_, key, key, into, least, most);
  }

  void read_areas(ImageProcessor& processor) const {
    if (const auto size = get<Json>(config_, "size")) {
      if (!size->is_object() || size->contains("height") || size->contains("width")) {
        refuse("size",
               tr("must hold shortest_edge and longest_edge, or min_pixels and max_pixels"));
      }
      for (const auto& [low, high] :
           {std::pair("shortest_edge", "longest_edge"), std::pair("min_pixels", "max_pixels")}) {
        read_whole_of(*size, low, "size", processor.min_pixels, 1, kLargestArea);
        read_whole_of(*size, high, "size", processor.max_pixels, 1, kLargestArea);
      }
    }
    read_whole("min_pixels", processor.min_pixels, 1, kLargestArea);
    read_whole("max_pixels", processor.max_pixels, 1, kLargestArea);
    if (processor.min_pixels > processor.max_pixels) {
      refuse("min_pixels",
             tr("is {}, above max_pixels, {}", processor.min_pixels, processor.max_pixels));
    }
  }

  void read_channels(const char* key, std::array<float, 3>& into, bool is_divisor) const {
    const auto value = get<Json>(config_, key);
    if (!value) return;
    if (!value->is_array() || value->size() != 3)
      refuse(key, tr("must be a list of three numbers"));
    for (size_t i = 0; i < 3; ++i) {
      const Json& number = (*value)[i];
      if (!number.is_number()) refuse(key, tr("must be a list of three numbers"));
      into[i] = number.get<float>();
      if (!std::isfinite(into[i]) || (is_divisor && into[i] <= 0)) {
        refuse(key, tr("must hold finite numbers, and image_std numbers above 0"));
      }
    }
  }

  [[noreturn]] void refuse(const char* key, const std::string& rule) const {
    throw ModelError(fmt::format("{}: {} {}", origin_, key, rule));
  }

 private:
  template <typename T>
  std::optional<T> get(const Json& object, const char* key) const {
    try {
      return json_get<T>(object, key);
    } catch (const DataError& error) {
      throw ModelError(fmt::format("{}: {}", origin_, error.what()));
    }
  }

  void read_whole_of(const Json& object, const char* key, const char* shown, int64_t& into,
                     int64_t least, int64_t most) const {
    const auto value = get<int64_t>(object, key);
    if (!value) return;
    if (*value < least || *value > most) {
      refuse(shown == std::string_view(key) ? key : shown,
             tr("must be from {} to {}, got {}", least, most, *value));
    }
    into = *value;
  }

  const Json& config_;
  const std::string& origin_;
};

Filter filter_of(int64_t resample, const ConfigReader& reader) {
  if (resample == 0) return Filter::kNearest;
  if (resample == 3) return Filter::kBicubic;
  reader.refuse("resample", tr("{} is not supported: 3 (bicubic) or 0 (nearest)", resample));
}

Size scaled_to_area(Size from, int64_t area) {
  const double factor = std::sqrt(static_cast<double>(area) / static_cast<double>(from.area()));
  return {static_cast<int64_t>(static_cast<double>(from.width) * factor),
          static_cast<int64_t>(static_cast<double>(from.height) * factor)};
}

/// Resizes of one picture as they are found: each begins where the last one ended.
class StepList {
 public:
  explicit StepList(Size from) : from_(from), now_(from) {}

  Size now() const { return now_; }
  std::vector<ResizeStep> steps() const { return steps_; }

  void add(Size to, Filter filter, bool in_rgb) {
    if (to.width <= 0 || to.height <= 0) {
      throw MediaError(
          MediaFault::kBadShape,
          tr("a picture of {} x {} pixels would be resized to {} x {}: a side must not be 0",
             from_.width, from_.height, to.width, to.height),
          tr("allow more pixels (max_pixels), or drop the row"));
    }
    if (to == now_) return;
    now_ = to;
    steps_.push_back({to, filter, in_rgb});
  }

 private:
  Size from_, now_;
  std::vector<ResizeStep> steps_;
};

void add_tool_steps(StepList& list, const PreResize& pre) {
  const bool nearest = pre.rule != PreResizeRule::kLlamaFactory;
  const Filter area_filter = nearest ? Filter::kNearest : Filter::kBicubic;
  const Filter side_filter =
      pre.rule == PreResizeRule::kMindSpeed20 ? Filter::kNearest : Filter::kBicubic;
  if (list.now().area() > pre.max_pixels) {
    list.add(scaled_to_area(list.now(), pre.max_pixels), area_filter, false);
  }
  if (pre.rule != PreResizeRule::kMindSpeed20 && list.now().area() < pre.min_pixels) {
    list.add(scaled_to_area(list.now(), pre.min_pixels), area_filter, false);
  }
  constexpr int64_t kLeastSide = 28, kReducedRatio = 180;
  list.add({std::max(list.now().width, kLeastSide), std::max(list.now().height, kLeastSide)},
           side_filter, true);
  const auto [width, height] = list.now();
  if (static_cast<double>(width) / static_cast<double>(height) > kMaxRatio) {
    list.add({height * kReducedRatio, height}, side_filter, true);
  } else if (static_cast<double>(height) / static_cast<double>(width) > kMaxRatio) {
    list.add({width, width * kReducedRatio}, side_filter, true);
  }
}

}  // namespace

ImageProcessor parse_image_processor(const Json& config, const std::string& origin) {
  const ConfigReader reader(config, origin);
  ImageProcessor processor;
  std::string type = "Qwen2VLImageProcessor";
  reader.read("image_processor_type", type);
  if (type.find("Qwen2VL") == type.npos && type.find("Qwen2_5_VL") == type.npos) {
    reader.refuse("image_processor_type",
                  tr("{} is not supported: only the processors of Qwen2-VL and Qwen2.5-VL", type));
  }
  reader.read_whole("patch_size", processor.patch_size, 1, 256);
  reader.read_whole("temporal_patch_size", processor.temporal_patch_size, 1, 16);
  reader.read_whole("merge_size", processor.merge_size, 1, 16);
  reader.read_areas(processor);
  reader.read_channels("image_mean", processor.mean, false);
  reader.read_channels("image_std", processor.std, true);
  reader.read("do_resize", processor.do_resize);
  reader.read("do_rescale", processor.do_rescale);
  reader.read("do_normalize", processor.do_normalize);
  reader.read("rescale_factor", processor.rescale_factor);
  if (!std::isfinite(processor.rescale_factor) || processor.rescale_factor <= 0) {
    reader.refuse("rescale_factor", tr("must be above 0, got {}", processor.rescale_factor));
  }
  int64_t resample = 3;
  reader.read("resample", resample);
  processor.filter = filter_of(resample, reader);
  return processor;
}

ImageProcessor read_image_processor(const std::filesystem::path& directory) {
  const auto nested = directory / "processor_config.json";
  if (std::filesystem::exists(nested)) {
    const Json config = read_json_file(nested);
    if (config.is_object() && config.contains("image_processor")) {
      return parse_image_processor(config["image_processor"],
                                   nested.string() + ": image_processor");
    }
  }
  const auto plain = directory / "preprocessor_config.json";
  if (!std::filesystem::exists(plain)) {
    throw ModelError(
        tr("{} has no preprocessor_config.json, which says how pictures are read",
           directory.string()),
        tr("copy it from the model that this one was made from, or download the model again"));
  }
  return parse_image_processor(read_json_file(plain), plain.string());
}

std::vector<ResizeStep> tool_steps(Size from, const ImageProcessor& processor,
                                   const PreResize& pre_resize) {
  StepList list(from);
  if (from.width <= 0 || from.height <= 0) list.add(from, Filter::kNearest, true);
  if (pre_resize.rule == PreResizeRule::kQwenUtils) {
    list.add(smart_resize_qwen_utils(from, processor.cell(), pre_resize.min_pixels,
                                     pre_resize.max_pixels),
             Filter::kBicubic, true);
  } else if (pre_resize.rule != PreResizeRule::kNone) {
    add_tool_steps(list, pre_resize);
  }
  return list.steps();
}

Size processor_size(Size from, const ImageProcessor& processor, const PreResize& pre_resize) {
  if (pre_resize.rule == PreResizeRule::kQwenUtils) return from;
  if (processor.do_resize) {
    return smart_resize(from, processor.cell(), processor.min_pixels, processor.max_pixels);
  }
  if (from.width % processor.cell() != 0 || from.height % processor.cell() != 0) {
    throw MediaError(MediaFault::kBadShape,
                     tr("a picture of {} x {} pixels cannot be cut into cells of {}: do_resize is "
                        "false in preprocessor_config.json",
                        from.width, from.height, processor.cell()));
  }
  return from;
}

std::vector<ResizeStep> resize_steps(Size from, const ImageProcessor& processor,
                                     const PreResize& pre_resize) {
  auto steps = tool_steps(from, processor, pre_resize);
  const Size before = steps.empty() ? from : steps.back().to;
  const Size size = processor_size(before, processor, pre_resize);
  if (size != before) steps.push_back({size, processor.filter, true});
  return steps;
}

Grid grid_of(int64_t width, int64_t height, const ImageProcessor& processor,
             const PreResize& pre_resize) {
  const auto steps = resize_steps({width, height}, processor, pre_resize);
  const Size size = steps.empty() ? Size{width, height} : steps.back().to;
  return {1, size.height / processor.patch_size, size.width / processor.patch_size};
}

}  // namespace danlu::media
