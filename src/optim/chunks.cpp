#include "optim/chunks.h"

#include <ATen/Parallel.h>

#include <algorithm>

namespace danlu::optim {
namespace {

// 32 Ki elements: the five f32 streams of an update (640 KB) stay inside a core's L2.
constexpr int64_t kChunkElements = 32 * 1024;
constexpr int64_t kAlignElements = 16;

}  // namespace

FlatLayout::FlatLayout(const std::vector<int64_t>& sizes) : sizes_(sizes) {
  for (size_t i = 0; i < sizes.size(); ++i) {
    offsets_.push_back(total_);
    for (int64_t begin = 0; begin < sizes[i]; begin += kChunkElements) {
      chunks_.push_back(
          {static_cast<int64_t>(i), begin, std::min(sizes[i], begin + kChunkElements), total_});
    }
    total_ += (sizes[i] + kAlignElements - 1) / kAlignElements * kAlignElements;
  }
}

void for_each_chunk(const FlatLayout& layout, const std::function<void(size_t)>& body) {
  at::parallel_for(0, static_cast<int64_t>(layout.chunks().size()), 1,
                   [&](int64_t begin, int64_t end) {
                     for (int64_t i = begin; i < end; ++i) body(static_cast<size_t>(i));
                   });
}

}  // namespace danlu::optim
