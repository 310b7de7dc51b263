// layers/positions.h: learned embeddings of positions and of token types, added to those of tokens.
#pragma once
#include "layers/module.h"
#include "parallel/parameter.h"
#include "parallel/region.h"

namespace danlu::layers {

using parallel::Parameter;

struct Positions {
  Parameter weight;  ///< [P, H], whole on every rank; undefined: the model has none
  parallel::Region region{parallel::Group::alone(), false};
  int64_t first = 0;  ///< the row of position 0

  void visit(Visitor& visitor) { visitor.parameter(weight); }
  /// Token embeddings with those of their positions.
  /// Shapes  tokens_nH, result [N, H], or this rank's rows of it (parallel/region.h); positions_N
  ///         int64 [N].
  /// Errors  ModelError naming a position that the table has no row for.
  at::Tensor added_to(const at::Tensor& tokens_nH, const at::Tensor& positions_N) const;
};

struct TokenTypes {
  Parameter weight;  ///< [T, H], whole on every rank; undefined: the model has none

  void visit(Visitor& visitor) { visitor.parameter(weight); }
  /// Token embeddings with those of their types: 1 for tokens with kSecondText, else 0; in a table
  /// of one row 0 for all. Shapes  tokens_NH, result [N, H]; ids_N int64 [N].
  at::Tensor added_to(const at::Tensor& tokens_NH, const at::Tensor& ids_N) const;
};

/// The tokens themselves, without kSecondText: int64 [N] on the host.
at::Tensor tokens_without_type(const at::Tensor& ids_N);

}  // namespace danlu::layers
