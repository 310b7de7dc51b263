#include "grammar/char_set.h"

#include <algorithm>

namespace danlu::grammar {
namespace {

constexpr char32_t kFirstSurrogate = 0xD800, kLastSurrogate = 0xDFFF;

}  // namespace

CharSet::CharSet(std::initializer_list<Range> ranges) {
  for (const Range& range : ranges) add(range.first, range.last);
}

void CharSet::add(char32_t first, char32_t last) {
  if (first < kFirstSurrogate && last >= kFirstSurrogate) {
    add(first, kFirstSurrogate - 1);
    first = kFirstSurrogate;
  }
  if (first >= kFirstSurrogate && first <= kLastSurrogate) first = kLastSurrogate + 1;
  if (first > last) return;
  Range joined{first, last};
  std::vector<Range> ranges;
  for (const Range& range : ranges_) {
    if (range.last + 1 < joined.first || joined.last + 1 < range.first) {
      ranges.push_back(range);
    } else {
      joined = {std::min(joined.first, range.first), std::max(joined.last, range.last)};
    }
  }
  const auto place = std::find_if(ranges.begin(), ranges.end(),
                                  [&](const Range& r) { return r.first > joined.first; });
  ranges.insert(place, joined);
  ranges_ = std::move(ranges);
}

void CharSet::add(const CharSet& other) {
  for (const Range& range : other.ranges_) add(range.first, range.last);
}

CharSet CharSet::complement() const {
  CharSet result;
  char32_t next = 0;
  for (const Range& range : ranges_) {
    if (range.first > next) result.add(next, range.first - 1);
    next = range.last + 1;
  }
  if (next <= kLast) result.add(next, kLast);
  return result;
}

CharSet CharSet::common(const CharSet& other) const {
  CharSet result;
  for (const Range& a : ranges_) {
    for (const Range& b : other.ranges_) {
      const char32_t first = std::max(a.first, b.first), last = std::min(a.last, b.last);
      if (first <= last) result.add(first, last);
    }
  }
  return result;
}

CharSet CharSet::without(const CharSet& other) const { return common(other.complement()); }

bool CharSet::contains(char32_t c) const {
  return std::any_of(ranges_.begin(), ranges_.end(),
                     [&](const Range& r) { return r.first <= c && c <= r.last; });
}

}  // namespace danlu::grammar
