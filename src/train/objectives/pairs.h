// train/objectives/pairs.h: what objectives over samples of two segments have in common.
#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "data/batch.h"
#include "train/objective.h"

namespace danlu::train {

/// Half the segments of a batch: samples may be packs of several pairs.
double num_pairs(const data::Batch& batch);

/// The number of targets in each segment of a whole batch: f64 [S] on the host.
at::Tensor answer_lengths(const data::Batch& batch);

/// Every second segment of a whole batch: answers (first = 0), or those of other rows (1). Errors:
/// InternalError for a batch with media.
data::Batch every_second(const data::Batch& batch, size_t first);

/// Errors, on every rank that shares the step: DataError where batches are not made of samples of
/// two segments, each with a target. Collective over batch_ranks().
void require_pairs(const parallel::Mesh& mesh, const std::vector<const data::Batch*>& whole);

/// Sums of whole batches' numbers over the ranks that share the step; the same on every rank of the
/// tensor axis. Collective.
std::vector<double> sums_of_step(const parallel::Mesh& mesh, std::vector<double> numbers);

/// The mean of a number of each pair, without gradient.
PassMetric mean_of_pairs(const at::Tensor& values_P);

/// The loss `sum` of whole segments, which every rank of the context axis has, as Loss wants it.
/// metrics: sums and weights, of which the axis' first rank gives its own and the others 0.
Loss loss_of_whole_segments(const parallel::Mesh& mesh, const at::Tensor& sum,
                            const std::map<std::string, PassMetric>& metrics);

}  // namespace danlu::train
