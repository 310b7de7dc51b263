// parallel/flat_layout.h: several tensors in one flat buffer.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ops/range.h"

namespace danlu::parallel {

using ops::Range;
/// The intersection of both, counted from the beginning of `a`; {0, 0} if it is empty.
Range overlap_in(const Range& a, const Range& b);

/// Where each tensor lies. Tensors, and the equal shares of the whole, begin at multiples of 256
/// elements. That is 512 bytes of the narrowest type, which devices and direct file access need.
class FlatLayout {
 public:
  explicit FlatLayout(const std::vector<int64_t>& sizes, int64_t shares = 1);
  size_t count() const { return ranges_.size(); }
  int64_t total() const { return total_; }
  const Range& range(size_t index) const { return ranges_[index]; }
  Range share(int64_t rank) const {
    return {rank * (total_ / shares_), (rank + 1) * (total_ / shares_)};
  }

 private:
  std::vector<Range> ranges_;
  int64_t total_ = 0, shares_ = 1;
};

}  // namespace danlu::parallel
