// layers/positions.h: learned position embeddings, added to those of tokens.
#pragma once
#include "layers/module.h"
#include "parallel/parameter.h"
#include "parallel/region.h"

namespace danlu::layers {

using parallel::Parameter;

struct Positions {
  Parameter weight;  ///< [P, H], whole on every rank; undefined: the model has none
  parallel::Region region{parallel::Group::alone(), false};

  void visit(Visitor& visitor) { visitor.parameter(weight); }
  /// Token embeddings with those of their positions.
  /// Shapes  tokens_nH, result [N, H], or this rank's rows of it (parallel/region.h); positions_N
  ///         int64 [N].
  /// Errors  ModelError naming a position that the table has no row for.
  at::Tensor added_to(const at::Tensor& tokens_nH, const at::Tensor& positions_N) const;
};

}  // namespace danlu::layers
