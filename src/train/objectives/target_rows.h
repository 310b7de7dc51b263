// train/objectives/target_rows.h: where a batch has targets.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>

#include <cstdint>
#include <vector>

#include "base/ignore_label.h"
#include "data/batch.h"

namespace danlu::train {

/// Where targets of a batch, or of the part that a rank has, are predicted, and what they are:
/// int64 [M] on the host.
struct TargetRows {
  at::Tensor rows_M, ids_M;

  explicit TargetRows(const data::Batch& batch) {
    std::vector<int64_t> rows, ids;
    for (size_t i = 0; i < batch.targets.size(); ++i) {
      if (batch.targets[i] == kIgnoreLabel) continue;
      rows.push_back(static_cast<int64_t>(i));
      ids.push_back(batch.targets[i]);
    }
    rows_M = at::tensor(rows, at::TensorOptions(at::kLong));
    ids_M = at::tensor(ids, at::TensorOptions(at::kLong));
  }
};

}  // namespace danlu::train
