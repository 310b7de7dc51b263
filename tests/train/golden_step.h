// tests/train/golden_step.h: one step of an objective over a golden's rows, whatever its cut.
#pragma once
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "train/batch_input.h"
#include "train/objective.h"
#include "train/support.h"

namespace danlu::train {
namespace preference_test {

using test::read_tensor;

inline std::filesystem::path golden_dir() { return danlu::test::shared_dir() / "golden" / "rl"; }

/// Appends the row without its padding as a segment whose targets are where `learnt` says.
inline void append_row(const at::Tensor& ids_T, const at::Tensor& mask_T,
                       const at::Tensor& learnt_T, data::Sample& sample) {
  if (!sample.ids.empty()) sample.segments.push_back(static_cast<int32_t>(sample.ids.size()));
  for (int64_t t = 0; t < ids_T.size(0); ++t) {
    if (mask_T[t].item<int64_t>() == 0) continue;
    const auto id = static_cast<int32_t>(ids_T[t].item<int64_t>());
    sample.ids.push_back(id);
    sample.labels.push_back(learnt_T[t].item<int64_t>() ? id : -100);
  }
}

/// The sums of each of the step's batches, which are prepared together; gradients are of the mean.
struct Found {
  std::vector<double> sums;
  std::map<std::string, double> metrics;
  double loss = 0;
};

inline Found step_of(const models::CausalLM& policy, const Objective& objective,
                     const std::vector<data::Batch>& batches) {
  StageLinks links(policy);
  std::vector<const data::Batch*> whole;
  double weight = 0;
  for (const data::Batch& batch : batches) {
    whole.push_back(&batch);
    weight += objective.weight(batch);
  }
  const auto columns = prepared(objective, ForwardPasses(policy, links), whole);
  const TrainedParts parts(objective, policy.mesh(), whole);
  Found found;
  Metrics metrics;
  for (size_t i = 0; i < whole.size(); ++i) {
    const data::Batch& batch = *parts.batches()[i];
    const models::ForwardInput input = evaluation_input(policy, batch);
    const Loss loss =
        objective.evaluate(policy, policy.forward(input), input, batch, columns[i], 1 / weight);
    found.sums.push_back(loss.sum.item<double>());
    found.loss += found.sums.back() / weight;
    for (const auto& [name, metric] : loss.metrics) {
      metrics[name].sum += metric.sum.item<double>();
      metrics[name].weight += metric.weight.item<double>();
    }
    torch::autograd::backward({loss.sum}, {grad_of_sum(loss, 1 / weight)});
  }
  found.metrics = values_of(metrics);
  EXPECT_EQ(found.metrics.size(), objective.metrics().size());
  return found;
}

inline std::vector<data::Batch> in_batches(const std::vector<data::Sample>& samples,
                                           const std::vector<size_t>& sizes) {
  std::vector<data::Batch> batches;
  size_t begin = 0;
  for (const size_t size : sizes) {
    const auto first = samples.begin() + static_cast<int64_t>(begin);
    batches.push_back(data::make_batch({first, first + static_cast<int64_t>(size)}));
    begin += size;
  }
  EXPECT_EQ(begin, samples.size());
  return batches;
}

inline void expect_gradients(const models::CausalLM& policy, const weights::TensorSource& golden,
                             const std::string& variant) {
  for (const parallel::Parameter& parameter : policy.parameters()) {
    const at::Tensor expected = read_tensor(golden, variant + ".grad." + parameter.name());
    const double largest = expected.abs().max().item<double>();
    const double far = (parameter.tensor.grad() - expected).abs().max().item<double>();
    EXPECT_LE(far, 2e-5 + 1e-4 * largest) << variant << " " << parameter.name();
    // What is added to all scores alike is in no pair's difference.
    if (parameter.name() != "v_head.summary.bias") EXPECT_GT(largest, 1e-6) << parameter.name();
  }
}

}  // namespace preference_test
}  // namespace danlu::train
