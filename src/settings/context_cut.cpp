#include "settings/context_cut.h"

#include <algorithm>

namespace danlu::settings {

std::vector<RowRange> chunks_of_group(const ContextShape& shape, int64_t group, int64_t tokens) {
  const int64_t chunks = 2 * shape.ring;
  const auto chunk = [&](int64_t i) {
    return RowRange{i * tokens / chunks, (i + 1) * tokens / chunks};
  };
  return {chunk(group), chunk(chunks - 1 - group)};
}

std::vector<RowRange> context_rows(const ContextShape& shape, int64_t rank, int64_t tokens) {
  const auto pair = chunks_of_group(shape, rank / shape.ulysses, tokens);
  const int64_t rows = pair[0].size() + pair[1].size(), place = rank % shape.ulysses;
  const int64_t begin = place * rows / shape.ulysses, end = (place + 1) * rows / shape.ulysses;
  std::vector<RowRange> result;
  int64_t before = 0;
  for (const RowRange& chunk : pair) {
    const RowRange part{chunk.begin + std::clamp<int64_t>(begin - before, 0, chunk.size()),
                        chunk.begin + std::clamp<int64_t>(end - before, 0, chunk.size())};
    if (part.size() > 0) result.push_back(part);
    before += chunk.size();
  }
  return result;
}

int64_t count_context_rows(const ContextShape& shape, int64_t rank, int64_t tokens) {
  int64_t count = 0;
  for (const RowRange& rows : context_rows(shape, rank, tokens)) count += rows.size();
  return count;
}

}  // namespace danlu::settings
