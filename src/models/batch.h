// models/batch.h: padded batches as other frameworks have them, packed for the model.
#pragma once
#include "models/causal_lm.h"

namespace danlu::models {

struct PaddedBatch {
  ForwardInput input;  ///< one segment per row; masked tokens left out; position = column
  at::Tensor
      targets_N;  ///< labels of the next column, -100 where there is none; undefined without labels
  at::Tensor index_N;  ///< int64: row * T + column of every packed token
};

/// Shapes  ids_BT, mask_BT, labels_BT [B, T] of any integer type; mask and labels may be undefined
/// (all ones; no targets). Errors  ModelError if the shapes differ or a row is masked entirely.
PaddedBatch pack_padded(const at::Tensor& ids_BT, const at::Tensor& mask_BT = {},
                        const at::Tensor& labels_BT = {});

}  // namespace danlu::models
