#include "train/objectives/precomputed.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/error.h"
#include "parallel/agree.h"
#include "train/batch_input.h"

namespace danlu::train {
namespace {

// Batches whose sums are found before they leave for the host.
constexpr int64_t kBatchesTogether = 64;

class KnownSamples : public data::SampleSource {
 public:
  KnownSamples(std::shared_ptr<const data::SampleSource> samples, SegmentLogprobs logprobs)
      : samples_(std::move(samples)), logprobs_(std::move(logprobs)) {}
  int64_t size() const override { return samples_->size(); }
  data::Sample get(int64_t index) const override {
    data::Sample sample = samples_->get(index);
    sample.segment_logprobs = logprobs_.at(static_cast<size_t>(index));
    return sample;
  }
  int64_t length(int64_t index) const override { return samples_->length(index); }
  uint64_t content_hash() const override { return samples_->content_hash(); }
  std::string columns(int64_t index) const override { return samples_->columns(index); }

 private:
  std::shared_ptr<const data::SampleSource> samples_;
  SegmentLogprobs logprobs_;
};

/// Samples [begin, end) of this rank as batches. segments: of each sample of each batch, how many.
struct Group {
  std::vector<data::Batch> batches;
  std::vector<std::vector<size_t>> segments;
};

Group group_of(const data::SampleSource& samples, int64_t begin, int64_t end, int64_t batch_size) {
  Group group;
  for (int64_t first = begin; first < end; first += batch_size) {
    std::vector<data::Sample> together;
    std::vector<size_t>& segments = group.segments.emplace_back();
    for (int64_t i = first; i < std::min(end, first + batch_size); ++i) {
      together.push_back(samples.get(i));
      segments.push_back(together.back().segments.size());
    }
    group.batches.push_back(data::make_batch(together));
  }
  return group;
}

/// The numbers of a stretch of samples, as bytes for other ranks.
std::string packed_numbers(const SegmentLogprobs& logprobs) {
  std::string bytes;
  for (const std::vector<double>& of_sample : logprobs)
    bytes.append(reinterpret_cast<const char*>(of_sample.data()),
                 of_sample.size() * sizeof(double));
  return bytes;
}

}  // namespace

SegmentLogprobs logprobs_of_samples(const FrozenModel* reference, const ForwardPasses& policy,
                                    const data::SampleSource& samples, int64_t batch_size) {
  const parallel::Mesh& mesh = policy.stage().mesh();
  const int64_t ranks = mesh.shape().data, rank = mesh.shape().data_rank(mesh.rank());
  // Every rank takes part in as many passes.
  const int64_t share = (samples.size() + ranks - 1) / ranks;
  const int64_t begin = std::min(samples.size(), rank * share),
                end = std::min(samples.size(), begin + share);
  SegmentLogprobs own;
  for (int64_t done = 0; done < share; done += kBatchesTogether * batch_size) {
    const int64_t first = std::min(end, begin + done);
    const Group group =
        group_of(samples, first, std::min(end, first + kBatchesTogether * batch_size), batch_size);
    std::vector<const data::Batch*> whole;
    for (const data::Batch& batch : group.batches) whole.push_back(&batch);
    const OwnParts parts(mesh, whole);
    const auto sums = reference_logprobs(reference, policy, parts.batches());
    for (size_t i = 0; i < whole.size(); ++i) {
      if (!sums[i].defined()) continue;
      const at::Tensor on_host = sums[i].to(at::kCPU, at::kDouble).contiguous();
      const double* at = on_host.data_ptr<double>();
      for (const size_t segments : group.segments[i]) {
        own.emplace_back(at, at + segments);
        at += segments;
      }
    }
  }
  // From the last stage to all, then over the data axis, whose first ranks have the first samples.
  const std::string of_share =
      parallel::text_from(mesh.pipeline(), mesh.pipeline().size() - 1, packed_numbers(own));
  std::string all;
  const std::vector<std::string> told = parallel::texts_of_all(mesh.batch_ranks(), of_share);
  const size_t copies = told.size() / static_cast<size_t>(ranks);  // a context axis has the same
  for (size_t i = 0; i < told.size(); i += copies) all += told[i];
  SegmentLogprobs found;
  size_t at = 0;
  for (int64_t i = 0; i < samples.size(); ++i) {
    std::vector<double> of_sample(samples.get(i).segments.size());
    const size_t bytes = of_sample.size() * sizeof(double);
    if (at + bytes > all.size()) throw InternalError("[reference] samples without their numbers");
    std::memcpy(of_sample.data(), all.data() + at, bytes);
    at += bytes;
    found.push_back(std::move(of_sample));
  }
  return found;
}

std::shared_ptr<const data::SampleSource> with_logprobs(
    std::shared_ptr<const data::SampleSource> samples, SegmentLogprobs logprobs) {
  return std::make_shared<KnownSamples>(std::move(samples), std::move(logprobs));
}

}  // namespace danlu::train
