// train/metrics.h: named figures of a step or an evaluation.
#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "parallel/mesh.h"

namespace danlu::train {

/// A figure that is shown as sum / weight. Both are summed over all micro-batches and ranks, so
/// that it is never a mean of means.
struct Metric {
  double sum = 0, weight = 0;
};
using Metrics = std::map<std::string, Metric>;

/// The Metric of one pass, on the device that computed it.
struct PassMetric {
  at::Tensor sum;     ///< scalar, without grad
  at::Tensor weight;  ///< scalar of any type
};

/// The values of scalars of any types and devices. Those that are alike come to the host together:
/// however many there are, a device is waited for once for each type.
std::vector<double> read_scalars(const std::vector<at::Tensor>& scalars);

/// Collects the metrics of passes and reads them after the last one, so that a step waits for the
/// device as often however many passes it has.
class MetricSums {
 public:
  void add(const std::string& name, const PassMetric& metric);
  Metrics read() const;

 private:
  std::map<std::string, std::vector<PassMetric>> passes_;
};

/// Replaces every number by its sum over the group's ranks.
void sum_over(const parallel::Group& group, std::vector<double>& numbers);
/// Replaces the numbers by those of the group's first rank, because unlike processors may round
/// differently.
void take_first(const parallel::Group& group, std::vector<double>& numbers);

/// sum / weight of each metric; one whose weight is 0 is left out.
std::map<std::string, double> values_of(const Metrics& metrics);

}  // namespace danlu::train
