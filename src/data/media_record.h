// data/media_record.h: the pictures and videos of a sample as one sequence of a token store.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/media_span.h"

namespace danlu::data {

/// Empty for no spans. Else the length in bytes of a JSON text, the text, then the bytes of the
/// files that rows held, each padded to whole numbers. Pixels are not in it.
std::vector<int32_t> media_record(const std::vector<MediaSpan>& spans);
/// The other way. `origin` begins error texts. Errors: DataError if media_record wrote no such
/// sequence.
std::vector<MediaSpan> read_media_record(std::span<const int32_t> record,
                                         const std::string& origin);
/// Reads the spans of a record without their files: the text is read, and not what comes after it.
/// Errors: as read_media_record.
std::vector<MediaSpan> read_media_heads(std::span<const int32_t> record, const std::string& origin);

}  // namespace danlu::data
