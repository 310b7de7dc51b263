#include "ops/chunks.h"

#include <algorithm>

#include "device/parallel.h"

namespace danlu::ops {

std::vector<Chunk> chunks_of(const std::vector<Range>& ranges) {
  // 32 Ki elements: the five f32 streams of an update (640 KB) stay inside a core's L2.
  constexpr int64_t kElements = 32 * 1024;
  std::vector<Chunk> chunks;
  for (size_t i = 0; i < ranges.size(); ++i) {
    for (int64_t begin = ranges[i].begin; begin < ranges[i].end; begin += kElements)
      chunks.push_back({i, {begin, std::min(ranges[i].end, begin + kElements)}});
  }
  return chunks;
}

std::vector<Chunk> chunks_in(const std::vector<Chunk>& chunks, const Range& part) {
  std::vector<Chunk> found;
  for (const Chunk& chunk : chunks) {
    const Range at = {std::max(chunk.at.begin, part.begin), std::min(chunk.at.end, part.end)};
    if (at.begin < at.end) found.push_back({chunk.index, at});
  }
  return found;
}

void for_each_chunk(const std::vector<Chunk>& chunks, const std::function<void(size_t)>& body) {
  device::parallel_each(chunks.size(), body);
}

}  // namespace danlu::ops
