#include "text/media.h"

#include <fmt/format.h>

#include <algorithm>

namespace danlu::text {
namespace {

/// How many of each kind were met in a conversation.
struct MediaCount {
  int images = 0, videos = 0;
};

void append_placeholder(MediaKind kind, bool add_vision_id, MediaCount* count, std::string* text) {
  const bool is_image = kind == MediaKind::kImage;
  const int number = is_image ? ++count->images : ++count->videos;
  if (add_vision_id) *text += fmt::format("{} {}: ", is_image ? "Picture" : "Video", number);
  *text += kVisionStart;
  *text += is_image ? kImagePad : kVideoPad;
  *text += kVisionEnd;
}

std::string_view first_pad_in(std::string_view text) {
  for (const std::string_view pad : {kImagePad, kVideoPad}) {
    if (text.find(pad) != text.npos) return pad;
  }
  return {};
}

std::string_view first_pad_within(const Json& value) {
  if (value.is_string()) return first_pad_in(value.get_ref<const std::string&>());
  if (!value.is_structured()) return {};
  for (const auto& [key, member] : value.items()) {
    if (const auto found = first_pad_in(std::string_view(key)); !found.empty()) return found;
    if (const auto found = first_pad_within(member); !found.empty()) return found;
  }
  return {};
}

}  // namespace

std::optional<MediaTokens> media_tokens(const Tokenizer& tokenizer) {
  const auto image = tokenizer.token_to_id(kImagePad), video = tokenizer.token_to_id(kVideoPad),
             start = tokenizer.token_to_id(kVisionStart), end = tokenizer.token_to_id(kVisionEnd);
  if (!image || !video || !start || !end) return std::nullopt;
  return MediaTokens{*image, *video, *start, *end};
}

std::vector<const MediaReference*> media_of(const Conversation& conversation) {
  std::vector<const MediaReference*> all;
  for (const Message& message : conversation.messages) {
    for (const MediaPlace& place : message.media) all.push_back(&place.media);
  }
  return all;
}

Conversation with_placeholders(const Conversation& conversation, bool add_vision_id) {
  Conversation written;
  written.tools = conversation.tools;
  written.messages.reserve(conversation.messages.size());
  MediaCount count;
  for (const Message& message : conversation.messages) {
    Message& copy = written.messages.emplace_back(message);
    if (message.media.empty()) continue;
    copy.media.clear();
    copy.content.clear();
    // An Alpaca row's parts, which have no placeholder.
    copy.extra.erase("instruction");
    copy.extra.erase("input");
    size_t begin = 0;
    for (const MediaPlace& place : message.media) {
      copy.content.append(message.content, begin, place.offset - begin);
      append_placeholder(place.media.kind, add_vision_id, &count, &copy.content);
      begin = place.offset;
    }
    copy.content.append(message.content, begin);
  }
  return written;
}

std::string_view placeholder_written_in(const Conversation& conversation) {
  for (const Message& message : conversation.messages) {
    if (const auto found = first_pad_in(message.content); !found.empty()) return found;
    if (const auto found = first_pad_within(message.extra); !found.empty()) return found;
  }
  return first_pad_within(conversation.tools);
}

}  // namespace danlu::text
