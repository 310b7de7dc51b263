// base/row_range.h: rows [begin, end) of something longer.
#pragma once
#include <cstdint>

namespace danlu {

struct RowRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const RowRange&) const = default;
};

}  // namespace danlu
