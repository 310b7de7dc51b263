#include "infer/prompt_lookup.h"

#include <algorithm>

namespace danlu::infer {

std::vector<text::TokenId> looked_up(std::span<const text::TokenId> text, const PromptLookup& how,
                                     int64_t most) {
  const int64_t size = std::ssize(text);
  if (most <= 0) return {};
  int64_t best = how.shortest - 1, follows = -1;
  for (int64_t end = size - 1; end > 0 && best < how.longest; --end) {
    int64_t same = 0;
    while (same < std::min(how.longest, end) &&
           text[static_cast<size_t>(end - 1 - same)] == text[static_cast<size_t>(size - 1 - same)])
      ++same;
    if (same <= best) continue;
    best = same;
    follows = end;
  }
  if (follows < 0) return {};
  const auto from = text.begin() + follows;
  return {from, from + std::min(most, size - follows)};
}

}  // namespace danlu::infer
