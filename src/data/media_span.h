// data/media_span.h: a picture or a video of a sample: where it lies, and which tokens stand for
// it.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "media/grid.h"
#include "media/smart_resize.h"
#include "text/conversation.h"

namespace danlu::data {

/// The file of a picture, of a video, or of one of its frames.
struct MediaFile {
  std::string path;  ///< absolute; beside `bytes` a name for messages
  std::shared_ptr<const std::string> bytes = nullptr;  ///< its content, where a row held it
};

/// No pixels: data/media_loader.h makes them when a step is near.
struct MediaSpan {
  text::MediaKind kind = text::MediaKind::kImage;
  media::Grid grid;              ///< patches
  int64_t begin = 0;             ///< the first placeholder's place in the sample or batch
  int64_t count = 0;             ///< of placeholders, all neighbours
  double second_per_grid = 0;    ///< seconds between neighbours in time; 0 of pictures
  std::vector<MediaFile> files;  ///< one; of a list of frames one for each
  bool is_frame_list = false;
  media::Size shown = {};  ///< pixels of a picture before any resize, while its row is read
  std::string row;         ///< "rows.jsonl: row 3", for messages
  uint64_t key = 0;        ///< in a batch: that of its first placeholder (Batch::token_keys)

  int64_t end() const { return begin + count; }
};

/// How many of `length` tokens may stay if at most `max_length` may, so that no picture is cut, and
/// none loses the tokens around it (<|vision_start|>, <|vision_end|>). `spans` ascend.
int64_t uncut_length(const std::vector<MediaSpan>& spans, int64_t max_length);
/// Leaves the spans that lie in [0, length).
void keep_spans_before(std::vector<MediaSpan>* spans, int64_t length);
/// Walks through [0, length) in order: text(begin, end) for what stands between spans, pads(begin,
/// count) for the placeholders of each.
template <typename Text, typename Pads>
void each_part(int64_t length, const std::vector<MediaSpan>& spans, Text text, Pads pads) {
  int64_t at = 0;
  for (const MediaSpan& span : spans) {
    if (span.begin >= length) break;
    if (span.begin > at) text(at, span.begin);
    pads(span.begin, std::min(span.count, length - span.begin));
    at = std::min(span.end(), length);
  }
  if (at < length) text(at, length);
}

/// Adds `spans`, shifted by `offset` tokens, to `all`.
void append_spans(const std::vector<MediaSpan>& spans, int64_t offset, std::vector<MediaSpan>* all);

}  // namespace danlu::data
