// data/formats/media_columns.h: which columns of a row hold pictures and videos, and where in the
// messages they belong.
#pragma once
#include <string>
#include <vector>

#include "data/formats/columns.h"
#include "data/formats/format_options.h"
#include "data/formats/row.h"

namespace danlu::data {

/// Under the names of the files.
struct MediaColumns {
  std::vector<std::string> images, videos;
  std::string objects = {};         ///< of names and boxes (formats/objects.h)
  std::vector<std::string> unused;  ///< those that map_keys says are not to be read

  bool holds(const std::string& column) const;
};

/// image, images, video and videos, unless map_keys or columns name others; null in map_keys: none.
/// Errors: UsageError (a role that is no name).
MediaColumns media_columns(const FormatOptions& options, const ColumnNames& names);

/// Puts what the columns of `row` hold where the tags <image> and <video> stand in the messages, in
/// order, and gives parts without a source theirs. In a row without such a column, tags are text,
/// but for Qwen-VL's <img>FILE</img>, which is a picture in every row that has no other.
/// False: *problem is set (tags and media differ in number; media both in parts and in columns).
/// `adds_tags`: of media with fewer tags, as many as lack one stand before the first message, as
/// ms-swift has it. Objects of the row (formats/objects.h) are read too.
bool attach_media(const Json& row, const MediaColumns& columns, bool adds_tags,
                  text::Conversation* conversation, RowProblem* problem);

}  // namespace danlu::data
