// data/formats/media.h: telling rows that hold pictures, video or audio beside their text, and
// refusing them where nobody could read them.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "data/formats/media_columns.h"

namespace danlu::data {

/// What of a row is not text, e.g. `column "images" holds pictures`: a value in a column image,
/// video or audio (or their plurals), as LLaVA, ShareGPT4V, ms-swift and LLaMA-Factory write them,
/// or <image>, <video>, <audio> in the row of a column that names such a file. `text_is_named`: the
/// user said which columns are read, and others may hold anything; then it takes a placeholder.
/// `read`: the columns that are read (null: none), which are passed by.
std::optional<std::string> media_in(const Json& row, bool text_is_named,
                                    const MediaColumns* read = nullptr);

/// Whether a text ends as the name of a picture, a video or a sound does.
bool names_media_file(const std::string& text);

/// Part of a message's content list that is no text: {"type": "image_url", …}, {"image": …}.
bool is_media_block(const Json& block);
/// Whether a block is sound, which no model here hears.
bool is_audio_block(const Json& block);
/// What a part calls itself, for messages: its type, or the key that it has in its place.
std::string media_block_name(const Json& block);

/// Pictures and videos of a conversation given as `row` (see text::parse_conversation), from the
/// parts of its messages and from its columns image, images, video and videos. `origin` begins
/// error texts. Errors: DataError for what cannot be read, and for any of them without
/// `reads_media`.
void take_media(const Json& row, const std::string& origin, bool reads_media,
                text::Conversation* conversation);

/// Errors: DataError "<what>: the model reads text alone".
[[noreturn]] void refuse_media(const std::string& what);
/// Errors: DataError "<what>: …" about a row whose pictures or sound have no place in a model that
/// reads pictures: sound, pictures beside plain text, a column nobody named.
[[noreturn]] void refuse_unread_media(const std::string& what);

}  // namespace danlu::data
