#include "train/rollouts/row_prompt.h"

#include <algorithm>

#include "base/ignore_label.h"

namespace danlu::train {

// Rows are read for it.
constexpr int64_t kMaxRows = 20'000;

std::vector<int32_t> prompt_of(const data::Sample& row) {
  const auto is_learnt = [](int32_t label) { return label != kIgnoreLabel; };
  const auto last = std::find_if(row.labels.rbegin(), row.labels.rend(), is_learnt);
  const auto before = std::find_if_not(last, row.labels.rend(), is_learnt);
  if (last == row.labels.rend()) return row.ids;
  const auto count = row.labels.rend() - before;
  // A label that is a target is learnt at the token before.
  return {row.ids.begin(), row.ids.begin() + count + (row.labels_are_targets ? 1 : 0)};
}

int64_t longest_prompt(const data::SampleSource& rows) {
  const int64_t stride = std::max<int64_t>(1, (rows.size() + kMaxRows - 1) / kMaxRows);
  size_t longest = 0;
  for (int64_t i = 0; i < rows.size(); i += stride)
    longest = std::max(longest, prompt_of(rows.get(i)).size());
  return static_cast<int64_t>(longest);
}

}  // namespace danlu::train
