// train/objectives/drawn_tokens.h: the tokens of answers that were drawn, as objectives see them.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "data/batch.h"
#include "parallel/group.h"

namespace danlu::train {

inline int64_t num_answers(const data::Batch& batch) {
  return static_cast<int64_t>(batch.segment_starts.size()) - 1;
}

/// The tokens of a batch, or of the part that this rank of the context axis has, that are targets:
/// M of them. Each has the row where it is predicted.
struct DrawnTokens {
  at::Tensor rows_M, ids_M;  ///< int64, on the host
  at::Tensor answer_M;       ///< which answer each belongs to, where numbers are worked with
  at::Tensor counts_S;       ///< tokens of each whole answer, at least 1, f64

  /// context: the ranks that have the parts of the batch. Collective over them.
  DrawnTokens(const data::Batch& batch, const at::Device& device,
              const parallel::Group& context = parallel::Group::alone());
  /// The column's values at the tokens, f64; undefined if the batch has none of that name.
  at::Tensor column(const data::Batch& batch, const char* name) const;
  /// The same. Errors: InternalError if there is none.
  at::Tensor needed_column(const data::Batch& batch, const char* name) const;
  /// Means over each answer's tokens, [S]: this rank's part of them, which ranks sum.
  at::Tensor part_of_means(const at::Tensor& values_M) const;
  /// The means themselves, on every rank; backward sums over ranks too. Collective.
  at::Tensor means_of_answers(const at::Tensor& values_M) const;

 private:
  const parallel::Group* context_;
};

}  // namespace danlu::train
