// data/grounded_text.h: objects that a row names beside its text (ms-swift's column `objects`), as
// Qwen2-VL and Qwen2.5-VL read and write them.
#pragma once
#include <cstdint>
#include <vector>

#include "data/formats/row.h"
#include "data/media_span.h"

namespace danlu::data {

/// How boxes are written. Qwen2-VL's lie in a picture of 1000 x 1000, Qwen2.5-VL's in the picture
/// as the model sees it.
struct BoxStyle {
  bool of_seen_pixels = false;
  /// <|object_ref_start|>a dog<|object_ref_end|><|box_start|>(1,2),(3,4)<|box_end|>; true: the name
  /// alone and [1, 2, 3, 4], as in Qwen2.5-VL's own examples.
  bool is_list = false;

  bool operator==(const BoxStyle&) const = default;
};

/// Puts names and boxes where <ref-object> and <bbox> stand in the messages, in order; numbers are
/// rounded, halves to the even neighbour. Nothing changes where the row has no objects: then tags
/// are text. `spans`: of its pictures and videos, measured. False: *problem is set (more tags than
/// objects; a box in a picture that is not there, or not finite; tags in a tool's call).
bool write_objects(text::Conversation* conversation, const std::vector<MediaSpan>& spans,
                   const BoxStyle& style, int64_t patch_size, RowProblem* problem);

}  // namespace danlu::data
