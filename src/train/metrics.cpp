#include "train/metrics.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>

namespace danlu::train {

void MetricSums::add(const std::string& name, const PassMetric& metric) {
  passes_[name].push_back(metric);
}

Metrics MetricSums::read() const {
  Metrics metrics;
  for (const auto& [name, passes] : passes_) {
    Metric& metric = metrics[name];
    for (const PassMetric& pass : passes) {
      metric.sum += pass.sum.item<double>();
      metric.weight += pass.weight.item<double>();
    }
  }
  return metrics;
}

namespace {

template <typename How>
void exchange(const parallel::Group& group, std::vector<double>& numbers, const How& how) {
  if (group.is_alone() || numbers.empty()) return;
  at::Tensor values = at::empty({static_cast<int64_t>(numbers.size())}, at::kDouble);
  std::copy(numbers.begin(), numbers.end(), values.data_ptr<double>());
  how(values);
  std::copy_n(values.data_ptr<double>(), numbers.size(), numbers.begin());
}

}  // namespace

void sum_over(const parallel::Group& group, std::vector<double>& numbers) {
  exchange(group, numbers, [&](at::Tensor& values) { group.all_reduce_sum(values); });
}

void take_first(const parallel::Group& group, std::vector<double>& numbers) {
  exchange(group, numbers, [&](at::Tensor& values) { group.broadcast(values, 0); });
}

std::map<std::string, double> values_of(const Metrics& metrics) {
  std::map<std::string, double> values;
  for (const auto& [name, metric] : metrics) {
    if (metric.weight > 0) values[name] = metric.sum / metric.weight;
  }
  return values;
}

}  // namespace danlu::train
