#include "train/objectives/pairs.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>

#include <algorithm>

#include "base/error.h"
#include "base/ignore_label.h"
#include "parallel/agree.h"

namespace danlu::train {
namespace {

std::vector<double> count_targets(const data::Batch& batch) {
  std::vector<double> counts(batch.segment_starts.size() - 1, 0.0);
  for (size_t s = 0; s < counts.size(); ++s) {
    for (int32_t i = batch.segment_starts[s]; i < batch.segment_starts[s + 1]; ++i)
      counts[s] += batch.targets[static_cast<size_t>(i)] != kIgnoreLabel;
  }
  return counts;
}

}  // namespace

PassMetric mean_of_pairs(const at::Tensor& values_P) {
  return {values_P.detach().sum(), at::scalar_tensor(values_P.numel(), at::kDouble)};
}

double num_pairs(const data::Batch& batch) {
  return static_cast<double>(batch.segment_starts.size() - 1) / 2;
}

at::Tensor answer_lengths(const data::Batch& batch) {
  return at::tensor(count_targets(batch), at::TensorOptions(at::kDouble));
}

data::Batch every_second(const data::Batch& batch, size_t first) {
  if (!batch.media.empty() || !batch.rows.empty())
    throw InternalError("[every_second] of whole batches of text alone");
  data::Batch chosen;
  chosen.num_samples = batch.num_samples;
  chosen.segment_starts.push_back(0);
  for (size_t s = first; s + 1 < batch.segment_starts.size(); s += 2) {
    const int32_t begin = batch.segment_starts[s], end = batch.segment_starts[s + 1];
    const auto take = [&](const auto& from, auto& to) {
      to.insert(to.end(), from.begin() + begin, from.begin() + end);
    };
    take(batch.ids, chosen.ids);
    take(batch.targets, chosen.targets);
    take(batch.positions, chosen.positions);
    take(batch.token_keys, chosen.token_keys);
    chosen.segment_starts.push_back(static_cast<int32_t>(chosen.ids.size()));
    if (!batch.segment_values.empty()) chosen.segment_values.push_back(batch.segment_values[s]);
    if (!batch.segment_logprobs.empty())
      chosen.segment_logprobs.push_back(batch.segment_logprobs[s]);
  }
  chosen.num_targets = std::count_if(chosen.targets.begin(), chosen.targets.end(),
                                     [](int64_t target) { return target != kIgnoreLabel; });
  return chosen;
}

void require_pairs(const parallel::Mesh& mesh, const std::vector<const data::Batch*>& whole) {
  parallel::together(mesh.batch_ranks(), [&] {
    for (const data::Batch* batch : whole) {
      if (batch->segment_starts.size() % 2 == 0) {
        throw DataError(tr("[train] samples that are not two answers each"),
                        tr("rows for this objective have a chosen and a rejected answer, or a "
                           "label"));
      }
      for (const double count : count_targets(*batch)) {
        if (count > 0) continue;
        throw DataError(tr("[train] an answer without a token to learn from"),
                        tr("raise --max_length, or drop rows with empty answers"));
      }
    }
  });
}

std::vector<double> sums_of_step(const parallel::Mesh& mesh, std::vector<double> numbers) {
  // All ranks of the context axis have the same whole batches.
  if (mesh.context().rank() > 0) numbers.assign(numbers.size(), 0.0);
  sum_over(mesh.batch_ranks(), numbers);
  take_first(mesh.tensor(), numbers);
  return numbers;
}

Loss loss_of_whole_segments(const parallel::Mesh& mesh, const at::Tensor& sum,
                            const std::map<std::string, PassMetric>& metrics) {
  const bool is_first = mesh.context().rank() == 0;
  Loss loss;
  loss.sum = is_first ? sum : sum - sum.detach();
  const double counts = is_first ? 1 : 0;
  for (const auto& [name, metric] : metrics)
    loss.metrics[name] = {metric.sum.detach() * counts, metric.weight * counts};
  return loss;
}

}  // namespace danlu::train
