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
  std::vector<std::string> unused;  ///< those that map_keys says are not to be read

  bool holds(const std::string& column) const;
};

/// image, images, video and videos, unless map_keys or columns name others; null in map_keys: none.
/// Errors: UsageError (a role that is no name).
MediaColumns media_columns(const FormatOptions& options, const ColumnNames& names);

/// Puts what the columns of `row` hold where the tags <image> and <video> stand in the messages, in
/// order, and gives parts without a source theirs. In a row without such a column, tags are text.
/// False: *problem is set (tags and media differ in number; media both in parts and in columns).
/// `lone_media_first`: media of a row without any tag stand before the first question, as ms-swift
/// has it.
bool attach_media(const Json& row, const MediaColumns& columns, bool lone_media_first,
                  text::Conversation* conversation, RowProblem* problem);

}  // namespace danlu::data
