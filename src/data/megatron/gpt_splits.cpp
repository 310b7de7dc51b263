#include "data/megatron/gpt_splits.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "base/error.h"
#include "base/log.h"
#include "data/megatron/blend.h"

namespace danlu::data {
namespace {

/// Opens each prefix once however many splits read it.
class OpenDatasets {
 public:
  std::shared_ptr<const IndexedDataset> open(const std::string& prefix) {
    auto& dataset = open_[prefix];
    if (!dataset) dataset = std::make_shared<const IndexedDataset>(prefix);
    return dataset;
  }

 private:
  std::map<std::string, std::shared_ptr<const IndexedDataset>> open_;
};

std::shared_ptr<const GptDataset> open_one(OpenDatasets& datasets, const std::string& prefix,
                                           const SplitMatrix& matrix, DatasetSplit split,
                                           std::optional<int64_t> size, const GptOptions& options) {
  const auto tokens = datasets.open(prefix);
  const IdRange exposed = split_range(matrix, split, tokens->num_sequences()).value();
  if (exposed.size() == 0) {
    const std::string message = fmt::format("{}: the {} split has none of the {} sequences", prefix,
                                            split_name(split), tokens->num_sequences());
    if (split == DatasetSplit::kTrain) {
      throw DataError(message, {"change --split, or use a larger data set",
                                "请调整 --split 或使用更大的数据集"});
    }
    log::warning("{}", message);
    return nullptr;
  }
  return std::make_shared<const GptDataset>(options, prefix, tokens, exposed, split, size);
}

std::shared_ptr<const SampleSource> open_blend(OpenDatasets& datasets, const BlendSpec& blend,
                                               const SplitMatrix& matrix, DatasetSplit split,
                                               std::optional<int64_t> size,
                                               const GptOptions& options) {
  std::vector<std::optional<int64_t>> wanted(blend.prefixes.size());
  std::vector<double> weights;
  if (blend.weights) {
    if (!size) {
      throw UsageError(
          fmt::format("--data-path: weights need a number of {} samples", split_name(split)));
    }
    weights = normalize_weights(*blend.weights);
    const std::vector<int64_t> sizes = blend_sizes(weights, *size);
    wanted.assign(sizes.begin(), sizes.end());
  }
  std::vector<std::shared_ptr<const SampleSource>> sources;
  Json identities = Json::array();
  for (size_t i = 0; i < blend.prefixes.size(); ++i) {
    auto one = open_one(datasets, blend.prefixes[i], matrix, split, wanted[i], options);
    if (!one) return nullptr;
    identities.push_back(one->identity());
    sources.push_back(std::move(one));
  }
  std::optional<int64_t> blended_size;
  if (blend.weights) {
    blended_size = 0;
    for (const auto& part : wanted) *blended_size += *part;
  } else {
    int64_t total = 0;
    for (const auto& source : sources) {
      weights.push_back(static_cast<double>(source->size()));
      total += source->size();
    }
    if (size) blended_size = std::min(*size, total);
  }
  return std::make_shared<const BlendedSource>(std::move(sources), std::move(weights), blended_size,
                                               identities, split, options.cache_dir);
}

}  // namespace

SplitSizes gpt_split_sizes(int64_t train_samples, int64_t train_iters, int64_t eval_interval,
                           int64_t eval_iters, int64_t global_batch_size) {
  const int64_t evaluations = eval_interval > 0 ? train_iters / eval_interval + 1 : 1;
  return {train_samples > 0 ? train_samples : train_iters * global_batch_size,
          evaluations * eval_iters * global_batch_size, eval_iters * global_batch_size};
}

std::array<std::shared_ptr<const SampleSource>, 3> open_gpt_splits(const GptDataPaths& paths,
                                                                   const SplitSizes& sizes,
                                                                   const GptOptions& options) {
  options.validate();
  const bool any_per_split = std::any_of(paths.per_split.begin(), paths.per_split.end(),
                                         [](const auto& items) { return !items.empty(); });
  if (any_per_split == !paths.all.empty()) {
    throw UsageError(
        any_per_split
            ? "--data-path and --train-data-path/--valid-data-path/--test-data-path exclude "
              "each other"
            : "--data-path: no data set given");
  }
  OpenDatasets datasets;
  std::array<std::shared_ptr<const SampleSource>, 3> splits;
  for (const DatasetSplit split : kSplits) {
    const auto at = static_cast<size_t>(split);
    GptOptions own = options;
    SplitMatrix matrix;
    if (any_per_split) {
      own.split_text.clear();
      if (!paths.per_split[at].empty()) matrix[at] = {0.0, 1.0};
    } else {
      matrix = parse_split(options.split_text);
    }
    if (!matrix[at]) continue;
    const BlendSpec blend = parse_blend(any_per_split ? paths.per_split[at] : paths.all);
    // A split with data sets of its own ignores the weight of a single one.
    const bool single = blend.prefixes.size() == 1 && (any_per_split || !blend.weights);
    splits[at] = single ? open_one(datasets, blend.prefixes[0], matrix, split, sizes[at], own)
                        : open_blend(datasets, blend, matrix, split, sizes[at], own);
  }
  return splits;
}

}  // namespace danlu::data
