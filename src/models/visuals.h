// models/visuals.h: pictures and videos of a pass, as a model with a vision tower takes them.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "media/grid.h"

namespace danlu::models {

/// All pictures and videos of a pass, in the order of their tokens. A visual token is
/// merge_size x merge_size patches of one frame; they are counted over all grids, frame by frame
/// and row by row.
struct Visuals {
  /// f32 [P, X] on the host: patches as media's processors give them, the merge_size² patches of a
  /// visual token one after another. Undefined where no stage of this rank begins a pass.
  at::Tensor pixels_PX;
  std::vector<media::Grid> grids;
  /// Visual token visual_rows[i] stands at token token_rows[i] of the pass. Ranks of a context axis
  /// have the visual tokens that stand at their own tokens.
  std::vector<int64_t> visual_rows, token_rows;
  /// int64 [P], as ForwardInput::dropout_keys_N, one for each patch; or undefined.
  at::Tensor dropout_keys_P;

  int64_t patches() const {
    int64_t count = 0;
    for (const media::Grid& grid : grids) count += grid.patches();
    return count;
  }
};

}  // namespace danlu::models
