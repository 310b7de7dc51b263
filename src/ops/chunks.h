// ops/chunks.h: cutting ranges of a flat buffer into pieces that threads share, the same way on
// every machine.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "ops/range.h"

namespace danlu::ops {

/// A piece of range `index`.
struct Chunk {
  size_t index = 0;
  Range at;
};

/// Borders depend on the ranges only, never on the thread count, so reductions over chunks are
/// reproducible.
std::vector<Chunk> chunks_of(const std::vector<Range>& ranges);

/// What of them lies in `part`.
std::vector<Chunk> chunks_in(const std::vector<Chunk>& chunks, const Range& part);

/// Calls body(i) for every chunk i, on the calling thread's team (device/parallel.h).
void for_each_chunk(const std::vector<Chunk>& chunks, const std::function<void(size_t)>& body);

}  // namespace danlu::ops
