// train/objectives/precomputed.h: log-probabilities of a reference that are computed once, before
// the training.
#pragma once
#include <memory>
#include <vector>

#include "data/sample_source.h"
#include "train/objectives/reference.h"

namespace danlu::train {

/// For each sample the sums of its segments' log-probabilities, in nats.
using SegmentLogprobs = std::vector<std::vector<double>>;

/// What the reference gives to all of `samples`, on every rank. reference: nullptr: the policy
/// without adapters. batch_size: samples of a pass. Collective over the mesh.
SegmentLogprobs logprobs_of_samples(const FrozenModel* reference, const ForwardPasses& policy,
                                    const data::SampleSource& samples, int64_t batch_size);

/// The same samples, each with its log-probabilities (data::Sample::segment_logprobs). REQUIRES: as
/// many.
std::shared_ptr<const data::SampleSource> with_logprobs(
    std::shared_ptr<const data::SampleSource> samples, SegmentLogprobs logprobs);

}  // namespace danlu::train
