// data/formats/media_values.h: what rows hold where a picture or a video is named.
#pragma once
#include <string>
#include <vector>

#include "base/json.h"
#include "data/formats/row.h"

namespace danlu::data {

/// A picture: a path, file:// or http(s) URL; a data: URL or raw base64 of a picture's file;
/// {"bytes", "path"} as Hugging Face's tables and ms-swift have it; {"url": …}, {"image": …}. A
/// video: the same, or a list of such pictures, which are its frames. False: *problem is set.
bool read_media_value(const Json& value, text::MediaKind kind, text::MediaReference* media,
                      RowProblem* problem);

/// A column's pictures or videos: one value or a list of them (of videos, a list of paths is
/// several videos: a list inside it is one of frames). Lists may be written as text. Values that
/// are null or empty ("", {"bytes": null, "path": null}) name nothing. False: *problem is set.
bool read_media_column(const Json& value, const std::string& column, text::MediaKind kind,
                       std::vector<text::MediaReference>* all, RowProblem* problem);

/// A part of a message's content list that is a picture or a video, such as {"type": "image_url",
/// "image_url": {"url": …}} or {"type": "video", "video": [frames…], "fps": 1}. A part without a
/// source ({"type": "image"}) has no pieces: its column names it. False: *problem is set.
bool read_media_part(const Json& part, text::MediaReference* media, RowProblem* problem);

}  // namespace danlu::data
