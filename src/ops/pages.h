// ops/pages.h: going through the pages of a sequence. Internal to ops.
#pragma once
#include <algorithm>
#include <cstdint>

#include "ops/cached_attention.h"

namespace danlu::ops {

/// Calls body(page, first place in it, which of [from, to) that is, number) for each page's part of
/// the tokens [from, to) of a sequence.
template <typename Body>
void each_page_part(const CachedSequence& sequence, int64_t from, int64_t to, const Body& body) {
  for (int64_t at = from; at < to;) {
    const int64_t page = at / kPageTokens, place = at % kPageTokens;
    const int64_t count = std::min(kPageTokens - place, to - at);
    body(sequence.pages[static_cast<size_t>(page)], place, at - from, count);
    at += count;
  }
}

}  // namespace danlu::ops
