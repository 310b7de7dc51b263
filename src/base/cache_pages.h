// base/cache_pages.h: how the memory of a cache of keys and values is cut, for those who keep one
// and those who plan it.
#pragma once
#include <algorithm>
#include <cstdint>

namespace danlu {

/// Positions that a page holds, of all layers.
inline constexpr int64_t kTokensOfPage = 32;

/// Pages of the slab by which a cache grows: some 16 MiB, which cost address space alone until
/// tokens are written to them.
inline int64_t pages_of_slab(int64_t page_bytes) {
  constexpr int64_t kSlabBytes = int64_t{16} << 20, kMost = 64;
  return std::clamp<int64_t>(kSlabBytes / page_bytes, 1, kMost);
}

}  // namespace danlu
