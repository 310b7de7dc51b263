// parallel/region.h: the borders of a part of the network that the tensor axis divides: one
// collective on the way in, one on the way out, whatever lies between.
#pragma once
#include "parallel/group.h"

namespace danlu::parallel {

/// Outside, every rank holds the same activations (tensor parallelism), or its share of their rows
/// (sequence parallelism, arXiv:2205.05198); inside, all rows of different columns. A group of one:
/// the identity.
class Region {
 public:
  /// `group` outlives every graph that passes through.
  Region(const Group& group, bool sequence) : group_(&group), sequence_(sequence) {}

  /// Tensor: x itself; backward sums over ranks. Sequence: rows of all ranks; backward sums and
  /// keeps the own rows.
  at::Tensor enter(const at::Tensor& x) const;
  /// Partial sums [N, …] to their sum. Tensor: on every rank; backward the identity. Sequence: this
  /// rank's rows (N divides over ranks); backward gathers.
  at::Tensor leave(const at::Tensor& x) const;

  const Group& group() const { return *group_; }
  bool is_alone() const { return group_->is_alone(); }
  /// Whether activations outside are cut by rows.
  bool is_sequence() const { return sequence_ && !is_alone(); }

 private:
  const Group* group_;
  bool sequence_;
};

}  // namespace danlu::parallel
