#include "train/objectives/drawn_tokens.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include <vector>

#include "base/error.h"
#include "base/ignore_label.h"
#include "device/sent.h"
#include "ops/pointwise.h"
#include "parallel/region.h"
#include "train/segment_sums.h"

namespace danlu::train {

DrawnTokens::DrawnTokens(const data::Batch& batch, const at::Device& device,
                         const parallel::Group& context)
    : context_(&context) {
  const std::vector<int64_t> segments = data::segment_of_tokens(batch);
  std::vector<int64_t> rows, ids, answers;
  for (size_t i = 0; i < batch.targets.size(); ++i) {
    if (batch.targets[i] == kIgnoreLabel) continue;
    rows.push_back(static_cast<int64_t>(i));
    ids.push_back(batch.targets[i]);
    answers.push_back(segments[i]);
  }
  const at::TensorOptions options(at::kLong);
  rows_M = at::tensor(rows, options);
  ids_M = at::tensor(ids, options);
  const at::Tensor on_host = at::tensor(answers, options);
  const c10::Device numbers = ops::device_of_numbers(device);
  counts_S = device::sent(at::bincount(on_host, {}, num_answers(batch)).to(at::kDouble), numbers);
  context.all_reduce_sum(counts_S);
  counts_S.clamp_min_(1);
  answer_M = device::sent(on_host, numbers);
}

at::Tensor DrawnTokens::column(const data::Batch& batch, const char* name) const {
  const auto found = batch.token_columns.find(name);
  if (found == batch.token_columns.end()) return {};
  std::vector<double> values;
  const int64_t* rows = rows_M.data_ptr<int64_t>();
  for (int64_t i = 0; i < rows_M.numel(); ++i)
    values.push_back(found->second[static_cast<size_t>(rows[i])]);
  return device::sent(at::tensor(values, at::TensorOptions(at::kDouble)), answer_M.device());
}

at::Tensor DrawnTokens::needed_column(const data::Batch& batch, const char* name) const {
  at::Tensor values_M = column(batch, name);
  if (!values_M.defined())
    throw InternalError(fmt::format("[objective] answers without the column \"{}\"", name));
  return values_M;
}

at::Tensor DrawnTokens::part_of_means(const at::Tensor& values_M) const {
  return sums_of_segments(values_M, answer_M, counts_S.numel()) / counts_S;
}

at::Tensor DrawnTokens::means_of_answers(const at::Tensor& values_M) const {
  // Each rank's loss depends on every rank's tokens: sums both ways.
  const parallel::Region region(*context_, /*sequence=*/false);
  return region.enter(region.leave(part_of_means(values_M)));
}

}  // namespace danlu::train
