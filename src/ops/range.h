// ops/range.h: a run of elements.
#pragma once
#include <cstdint>

namespace danlu::ops {

/// Elements [begin, end).
struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

}  // namespace danlu::ops
