// train/metrics.h: figures of a step or an evaluation by their names.
#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "parallel/mesh.h"

namespace danlu::train {

/// Shown as sum / weight, both over all micro-batches and ranks: never a mean of means.
struct Metric {
  double sum = 0, weight = 0;
};
using Metrics = std::map<std::string, Metric>;

/// The same of one pass, where it was computed.
struct PassMetric {
  at::Tensor sum;     ///< scalar, without grad
  at::Tensor weight;  ///< scalar of any type
};

/// Scalars of passes, read after the last of them, which waits for the device once.
class MetricSums {
 public:
  void add(const std::string& name, const PassMetric& metric);
  Metrics read() const;

 private:
  std::map<std::string, std::vector<PassMetric>> passes_;
};

/// Every number becomes the sum over the group's ranks.
void sum_over(const parallel::Group& group, std::vector<double>& numbers);
/// Rank 0's numbers: unlike processors may compute the same in other last bits.
void take_first(const parallel::Group& group, std::vector<double>& numbers);

/// Of each name that is there: sum / weight; without a weight there is nothing to show.
std::map<std::string, double> values_of(const Metrics& metrics);

}  // namespace danlu::train
