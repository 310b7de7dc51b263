// tests/train/golden_rows.h: the rows that a recorded training learnt from.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "train/support.h"

namespace danlu::train::test {

/// The rows of step `step`, without padding (attention_mask 0). prefix: before the tensors' names.
inline std::shared_ptr<data::VectorSource> golden_rows(const weights::TensorSource& golden,
                                                       int64_t step,
                                                       const std::string& prefix = "") {
  const at::Tensor ids = read_tensor(golden, prefix + "input_ids")[step];
  const at::Tensor mask = read_tensor(golden, prefix + "attention_mask")[step];
  const at::Tensor labels = read_tensor(golden, prefix + "labels")[step];
  std::vector<data::Sample> samples;
  for (int64_t row = 0; row < ids.size(0); ++row) {
    data::Sample& sample = samples.emplace_back();
    for (int64_t t = 0; t < ids.size(1); ++t) {
      if (mask[row][t].item<int64_t>() == 0) continue;
      sample.ids.push_back(static_cast<int32_t>(ids[row][t].item<int64_t>()));
      sample.labels.push_back(static_cast<int32_t>(labels[row][t].item<int64_t>()));
    }
  }
  return std::make_shared<data::VectorSource>(std::move(samples));
}

}  // namespace danlu::train::test
