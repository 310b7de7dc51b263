// train/objectives/drawn_tokens.h: the tokens of answers that were drawn, as objectives see them.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "data/batch.h"

namespace danlu::train {

inline int64_t num_answers(const data::Batch& batch) {
  return static_cast<int64_t>(batch.segment_starts.size()) - 1;
}

/// The tokens of a batch that are targets, M of them. Each has the row where it is predicted.
struct DrawnTokens {
  at::Tensor rows_M, ids_M;  ///< int64, on the host
  at::Tensor answer_M;       ///< which answer each belongs to, on the device
  at::Tensor counts_S;       ///< tokens of each answer, at least 1, f64

  DrawnTokens(const data::Batch& batch, const at::Device& device);
  /// The column's values at the tokens, f64; undefined if the batch has none of that name.
  at::Tensor column(const data::Batch& batch, const char* name) const;
  /// The same. Errors: InternalError if there is none.
  at::Tensor needed_column(const data::Batch& batch, const char* name) const;
  at::Tensor sum_of_answers(const at::Tensor& values_M) const;
  at::Tensor mean_of_answers(const at::Tensor& values_M) const;
};

}  // namespace danlu::train
