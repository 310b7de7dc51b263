// arch/shard.h: which rectangles of a parameter a rank holds: one rule for models that are trained,
// checkpoints that are read and the native format. (Megatron's files follow rules of their own:
// weights/megatron/pieces.h.)
#pragma once
#include <cstdint>
#include <vector>

#include "arch/model_config.h"

namespace danlu::arch {

/// Rows and columns of a tensor's matrix: shape[0] rows (1 for a scalar), and the product of the
/// other sizes as columns (1 for a vector).
struct Rect {
  int64_t row = 0, rows = 0, col = 0, cols = 0;
  bool operator==(const Rect&) const = default;
};
/// The rectangle of the whole matrix.
Rect matrix_of(const std::vector<int64_t>& shape);

/// A rank's position on the axes that cut parameters.
struct Coord {
  int64_t tp_size = 1, tp_rank = 0;
  int64_t ep_size = 1, ep_rank = 0;
  /// The tensor axis falls into as many runs of neighbours, each of which has experts of its own
  /// and cuts every one of them. Divides tp_size; tp_size: experts are whole.
  int64_t expert_dealers = 1;
};

/// The rectangles of `spec` that the rank at `place` holds, in the order in which its tensor joins
/// them, one below the other. Empty: it holds none, as of another rank's expert. Query, key and
/// value are cut by KV groups. A fused matrix is cut inside its parts, so that the local one has
/// the layout of the whole. With more ranks than KV heads each rank holds a copy of one. The last
/// ranks may have fewer rows of the vocabulary than the others, or none. REQUIRES: tp divides the
/// heads and the widths of feed-forward parts; tp divides the KV heads, or they divide tp; ep times
/// the dealers divides the number of experts.
std::vector<Rect> shard(const ModelConfig& config, const ParamSpec& spec, const Coord& place);

/// Checks what shard() requires of a dense model. Errors: UsageError naming what `tp_size` does not
/// divide, and sizes that do; for more than one rank of a model with linear attention.
void require_divides(const ModelConfig& config, int64_t tp_size);

}  // namespace danlu::arch
