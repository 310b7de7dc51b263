#include "infer/drawings.h"

#include <span>

#include "device/parallel.h"

namespace danlu::infer {

Drawing Drawing::of_copy(LiveRequest& live, const StepResult& result, int64_t row) {
  Drawing drawing{&live, row};
  if (!result.likeliest_R.empty()) return drawing;
  const std::span<float> logits =
      answerable(result.logits_RV, static_cast<size_t>(row), live.asked.request);
  drawing.own_row.assign(logits.begin(), logits.end());
  return drawing;
}

std::vector<DrawnToken> drawn_from(const StepResult& result, std::vector<Drawing>& drawings,
                                   at::ScalarType computed_in) {
  std::vector<DrawnToken> drawn(drawings.size());
  device::parallel_each(drawings.size(), [&](size_t i) {
    Drawing& drawing = drawings[i];
    const LiveRequest& live = *drawing.live;
    if (live.asked.gives_logits) return;
    const auto row = static_cast<size_t>(drawing.row);
    if (!result.likeliest_R.empty()) {
      drawn[i].token = result.likeliest_R[row];
      return;
    }
    drawn[i] = draw(drawing.own_row.empty() ? answerable(result.logits_RV, row, live.asked.request)
                                            : std::span<float>(drawing.own_row),
                    live, computed_in);
  });
  return drawn;
}

}  // namespace danlu::infer
