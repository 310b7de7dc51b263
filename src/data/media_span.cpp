#include "data/media_span.h"

#include <algorithm>

namespace danlu::data {

int64_t uncut_length(const std::vector<MediaSpan>& spans, int64_t max_length) {
  for (const MediaSpan& span : spans) {
    const int64_t first = std::max<int64_t>(0, span.begin - 1), past = span.end() + 1;
    if (first < max_length && max_length < past) return first;
  }
  return max_length;
}

void keep_spans_before(std::vector<MediaSpan>* spans, int64_t length) {
  std::erase_if(*spans, [&](const MediaSpan& span) { return span.end() > length; });
}

void append_spans(const std::vector<MediaSpan>& spans, int64_t offset,
                  std::vector<MediaSpan>* all) {
  for (const MediaSpan& span : spans) {
    all->push_back(span);
    all->back().begin += offset;
  }
}

}  // namespace danlu::data
