#include "train/metrics.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

namespace danlu::train {

std::vector<double> read_scalars(const std::vector<at::Tensor>& scalars) {
  const at::NoGradGuard no_grad;
  std::map<std::pair<std::string, at::ScalarType>, std::vector<size_t>> alike;
  for (size_t i = 0; i < scalars.size(); ++i)
    alike[{scalars[i].device().str(), scalars[i].scalar_type()}].push_back(i);
  std::vector<double> values(scalars.size());
  for (const auto& [kind, places] : alike) {
    const auto count = static_cast<int64_t>(places.size());
    const at::Tensor together = at::empty({count}, scalars[places.front()].options());
    for (int64_t i = 0; i < count; ++i)
      together.narrow(0, i, 1).copy_(scalars[places[static_cast<size_t>(i)]].reshape({1}));
    const at::Tensor on_host = together.cpu().to(at::kDouble);
    for (int64_t i = 0; i < count; ++i)
      values[places[static_cast<size_t>(i)]] = on_host.data_ptr<double>()[i];
  }
  return values;
}

void MetricSums::add(const std::string& name, const PassMetric& metric) {
  passes_[name].push_back(metric);
}

Metrics MetricSums::read() const {
  std::vector<at::Tensor> scalars;
  for (const auto& [name, passes] : passes_) {
    for (const PassMetric& pass : passes) scalars.insert(scalars.end(), {pass.sum, pass.weight});
  }
  const std::vector<double> values = read_scalars(scalars);
  Metrics metrics;
  size_t next = 0;
  for (const auto& [name, passes] : passes_) {
    Metric& metric = metrics[name];
    for (size_t pass = 0; pass < passes.size(); ++pass) {
      metric.sum += values[next++];
      metric.weight += values[next++];
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
