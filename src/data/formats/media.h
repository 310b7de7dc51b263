// data/formats/media.h: rows that hold pictures, video or audio beside their text.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"

namespace danlu::data {

/// What of a row is not text, e.g. `column "images" holds pictures`: a value in a column image,
/// video or audio (or their plurals), as LLaVA, ShareGPT4V, ms-swift and LLaMA-Factory write them,
/// or <image>, <video>, <audio> in the row of a column that names such a file. `text_is_named`: the
/// user said which columns are read, and others may hold anything; then it takes a placeholder.
std::optional<std::string> media_in(const Json& row, bool text_is_named);

/// Part of a message's content list that is no text: {"type": "image_url", …}.
bool is_media_block(std::string_view type);

/// Errors: DataError "<what>: multimodal models are not part of this version".
[[noreturn]] void refuse_media(const std::string& what);

}  // namespace danlu::data
