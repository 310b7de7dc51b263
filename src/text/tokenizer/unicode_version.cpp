#include "text/tokenizer/unicode_version.h"

#include <utf8proc.h>

#include <algorithm>

namespace danlu::text {

namespace {

constexpr CategoryChange kChanges[] = {
#include "text/tokenizer/unicode_changes.inc"
};

/// Lower-case letters of Unicode 15 to 17: `step` apart from `first` to `last`, `delta` away.
struct LowerRange {
  uint32_t first, last, step;
  int32_t delta;
};
constexpr LowerRange kNewLower[] = {
    {0x1C89, 0x1C89, 1, 1},      {0xA7CB, 0xA7CB, 1, 0x264 - 0xA7CB}, {0xA7CC, 0xA7CE, 2, 1},
    {0xA7D2, 0xA7DA, 2, 1},      {0xA7DC, 0xA7DC, 1, 0x19B - 0xA7DC}, {0x10D50, 0x10D65, 1, 0x20},
    {0x16EA0, 0x16EB8, 1, 0x1B},
};

const CategoryChange* find_change(char32_t c) {
  const auto* at =
      std::upper_bound(std::begin(kChanges), std::end(kChanges), c,
                       [](char32_t v, const CategoryChange& r) { return v < r.first; });
  if (at == std::begin(kChanges)) return nullptr;
  --at;
  return c <= at->last ? at : nullptr;
}

}  // namespace

std::span<const CategoryChange> category_changes() { return kChanges; }

int category_as_of(char32_t c, int version) {
  if (const CategoryChange* change = find_change(c)) {
    return version >= change->since ? change->after : change->before;
  }
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

bool is_numeric(char32_t c) {
  const int category = category_as_of(c, kStdUnicode);
  return category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL ||
         category == UTF8PROC_CATEGORY_NO;
}

char32_t to_lower(char32_t c) {
  if (c >= 0x1C89) {
    for (const LowerRange& range : kNewLower) {
      if (c >= range.first && c <= range.last && (c - range.first) % range.step == 0) {
        return static_cast<char32_t>(static_cast<int32_t>(c) + range.delta);
      }
    }
  }
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}

}  // namespace danlu::text
