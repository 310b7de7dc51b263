// infer/drawings.h: the tokens that a pass's logits give the requests in it.
#pragma once
#include <cstdint>
#include <vector>

#include "infer/live_request.h"
#include "infer/step.h"

namespace danlu::infer {

/// A token to be drawn by row `row` of what a pass gave.
struct Drawing {
  LiveRequest* live;
  int64_t row;
  std::vector<float> own_row = {};  ///< if not empty, a copy of it: rules change the logits

  /// For a request that is not the only one of its row.
  static Drawing of_copy(LiveRequest& live, const StepResult& result, int64_t row);
};

/// A token for each. Those that want their logits instead have none.
std::vector<DrawnToken> drawn_from(const StepResult& result, std::vector<Drawing>& drawings,
                                   at::ScalarType computed_in);

}  // namespace danlu::infer
