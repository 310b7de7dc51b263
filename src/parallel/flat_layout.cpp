#include "parallel/flat_layout.h"

#include <algorithm>

namespace danlu::parallel {
namespace {

constexpr int64_t kAlignElements = 256;

int64_t rounded_up(int64_t number, int64_t unit) { return (number + unit - 1) / unit * unit; }

}  // namespace

Range overlap_in(const Range& a, const Range& b) {
  const int64_t begin = std::max(a.begin, b.begin), end = std::min(a.end, b.end);
  if (begin >= end) return {};
  return {begin - a.begin, end - a.begin};
}

FlatLayout::FlatLayout(const std::vector<int64_t>& sizes, int64_t shares) : shares_(shares) {
  for (const int64_t size : sizes) {
    ranges_.push_back({total_, total_ + size});
    total_ = rounded_up(total_ + size, kAlignElements);
  }
  total_ = rounded_up(total_, kAlignElements * shares);
}

}  // namespace danlu::parallel
