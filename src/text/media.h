// text/media.h: pictures and videos in a conversation, and the tokens that stand for them.
#pragma once
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/conversation.h"
#include "text/tokenizer.h"

namespace danlu::text {

/// What Qwen2-VL's and Qwen2.5-VL's vocabularies call the tokens.
inline constexpr std::string_view kVisionStart = "<|vision_start|>", kVisionEnd = "<|vision_end|>",
                                  kImagePad = "<|image_pad|>", kVideoPad = "<|video_pad|>";

/// The ids that stand for pictures and videos, and those around them.
struct MediaTokens {
  TokenId image_pad = -1, video_pad = -1, start = -1, end = -1;
  bool is_pad(TokenId id) const { return id == image_pad || id == video_pad; }
  TokenId pad_of(MediaKind kind) const { return kind == MediaKind::kImage ? image_pad : video_pad; }
};
/// Nothing if the vocabulary lacks one of the four tokens above.
std::optional<MediaTokens> media_tokens(const Tokenizer& tokenizer);

/// All pictures and videos, in order of appearance. They live as long as `conversation`.
std::vector<const MediaReference*> media_of(const Conversation& conversation);

/// The same with one placeholder written where each picture and video stands, as the template of
/// Qwen2-VL writes it: <|vision_start|><|image_pad|><|vision_end|>, of a video <|video_pad|>.
/// add_vision_id: "Picture N: " or "Video N: " before each, counted over the conversation.
Conversation with_placeholders(const Conversation& conversation, bool add_vision_id);

/// The first of <|image_pad|> and <|video_pad|> that somebody wrote into the text itself: it would
/// stand for a picture that is not there. Empty if there is none.
std::string_view placeholder_written_in(const Conversation& conversation);

}  // namespace danlu::text
