#include "data/grounded_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <optional>
#include <string>
#include <string_view>

namespace danlu::data {
namespace {

constexpr std::string_view kNameTag = "<ref-object>", kBoxTag = "<bbox>";

/// The places of objects in the text of one conversation.
class ObjectWriter {
 public:
  ObjectWriter(const text::Grounding& objects, const std::vector<MediaSpan>& spans,
               const BoxStyle& style, int64_t patch_size, RowProblem* problem)
      : objects_(objects), style_(style), patch_size_(patch_size), problem_(problem) {
    for (const MediaSpan& span : spans)
      if (span.kind == text::MediaKind::kImage) pictures_.push_back(&span);
  }

  /// False: the problem is set.
  bool write(text::Message* message) {
    std::string content;
    size_t begin = 0;
    auto place = message->media.begin();
    const auto shift_places = [&](size_t to) {
      // Places before `to` move by as much as the text before them has grown.
      for (; place != message->media.end() && place->offset <= to; ++place)
        place->offset = content.size() + (place->offset - begin);
    };
    for (size_t at = message->content.find('<'); at != std::string::npos;
         at = message->content.find('<', at + 1)) {
      const std::string_view rest = std::string_view(message->content).substr(at);
      const bool is_name = rest.starts_with(kNameTag);
      if (!is_name && !rest.starts_with(kBoxTag)) continue;
      shift_places(at);
      content.append(message->content, begin, at - begin);
      const auto text = is_name ? next_name() : next_box();
      if (!text) return false;
      content += *text;
      begin = at + (is_name ? kNameTag : kBoxTag).size();
    }
    shift_places(std::string::npos);
    message->content = content.append(message->content, begin);
    const std::string others = message->extra.dump(-1, ' ', false, Json::error_handler_t::replace);
    for (const std::string_view tag : {kNameTag, kBoxTag}) {
      if (others.find(tag) == std::string::npos) continue;
      *problem_ = {"a tag of an object beside a message's text", std::string(tag)};
      return false;
    }
    return true;
  }

  /// Whether there were as many objects as tags.
  bool require_enough() const {
    if (names_ > objects_.names.size())
      return refuse("<ref-object> and the names of objects differ in number", names_,
                    objects_.names.size());
    if (boxes_ > objects_.boxes.size())
      return refuse("<bbox> and boxes differ in number", boxes_, objects_.boxes.size());
    return true;
  }

 private:
  bool refuse(const char* reason, size_t tags, size_t there) const {
    *problem_ = {reason, fmt::format("{} and {}", tags, there)};
    return false;
  }

  /// The empty text beyond the last one: require_enough tells the numbers.
  std::optional<std::string> next_name() {
    const size_t index = names_++;
    if (index >= objects_.names.size()) return "";
    const std::string& name = objects_.names[index];
    return style_.is_list ? name : fmt::format("<|object_ref_start|>{}<|object_ref_end|>", name);
  }

  std::optional<std::string> next_box() {
    const size_t index = boxes_++;
    if (index >= objects_.boxes.size()) return "";
    const std::vector<double>& box = objects_.boxes[index];
    const int64_t at = objects_.pictures.at(index);
    if (at < 0 || at >= std::ssize(pictures_)) {
      *problem_ = {"a box in a picture that is not there",
                   fmt::format("picture {} of {}", at, pictures_.size())};
      return std::nullopt;
    }
    const MediaSpan& picture = *pictures_[static_cast<size_t>(at)];
    std::vector<int64_t> numbers;
    for (size_t i = 0; i < box.size(); ++i) {
      const bool is_x = i % 2 == 0;
      const auto side = static_cast<double>(is_x ? picture.shown.width : picture.shown.height);
      const auto seen = static_cast<double>((is_x ? picture.grid.w : picture.grid.h) * patch_size_);
      const double number = std::nearbyint(box[i] / (objects_.in_shares ? 1.0 : side) *
                                           (style_.of_seen_pixels ? seen : 1000.0));
      constexpr double kLargest = 1e9;
      if (!(std::fabs(number) <= kLargest)) {
        *problem_ = {"a box beyond all pictures", fmt::format("{}", box[i])};
        return std::nullopt;
      }
      numbers.push_back(static_cast<int64_t>(number));
    }
    return written(numbers);
  }

  std::string written(const std::vector<int64_t>& numbers) const {
    if (style_.is_list) return fmt::format("[{}]", fmt::join(numbers, ", "));
    std::vector<std::string> points;
    for (size_t i = 0; i + 1 < numbers.size(); i += 2)
      points.push_back(fmt::format("({},{})", numbers[i], numbers[i + 1]));
    return fmt::format("<|box_start|>{}<|box_end|>", fmt::join(points, ","));
  }

  const text::Grounding& objects_;
  BoxStyle style_;
  int64_t patch_size_;
  RowProblem* problem_;
  std::vector<const MediaSpan*> pictures_;
  size_t names_ = 0, boxes_ = 0;
};

}  // namespace

bool write_objects(text::Conversation* conversation, const std::vector<MediaSpan>& spans,
                   const BoxStyle& style, int64_t patch_size, RowProblem* problem) {
  if (!conversation->grounding) return true;
  ObjectWriter writer(*conversation->grounding, spans, style, patch_size, problem);
  for (text::Message& message : conversation->messages)
    if (!writer.write(&message)) return false;
  return writer.require_enough();
}

}  // namespace danlu::data
