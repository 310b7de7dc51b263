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
/// All of a tensor's matrix.
Rect matrix_of(const std::vector<int64_t>& shape);

/// A rank's place on the axes that cut parameters.
struct Coord {
  int64_t tp_size = 1, tp_rank = 0;
  int64_t ep_size = 1, ep_rank = 0;
  /// Experts are dealt over tp·ep ranks and not cut inside.
  bool tp_extends_ep = false;
};

/// The rectangles, in the order in which the rank's tensor joins them (one below the other). Empty:
/// the rank holds nothing of it (another rank's expert, the end of a small vocabulary).
/// Query, key and value go by KV groups; a fused matrix is cut inside its parts, so that the local
/// one has the layout of the whole. With more ranks than KV heads each holds a copy of one.
/// REQUIRES: sizes that divide: tp the heads, and KV heads by tp or tp by KV heads; tp the widths
/// of feed-forward parts; the owners the experts. The vocabulary need not divide: the last ranks
/// have fewer rows, or none.
std::vector<Rect> shard(const ModelConfig& config, const ParamSpec& spec, const Coord& coord);

/// That of shard() of a dense model. Errors: UsageError naming what `tp_size` does not divide, and
/// sizes that do.
void require_divides(const ModelConfig& config, int64_t tp_size);

}  // namespace danlu::arch
