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
    if (!dataset) {
      for (const fs::path& file : {index_path(prefix), tokens_path(prefix)}) require_file(file);
      dataset = std::make_shared<const IndexedDataset>(prefix);
    }
    return dataset;
  }

 private:
  static void require_file(const fs::path& file) {
    std::error_code unreadable;
    if (fs::exists(file, unreadable) || unreadable) return;
    throw DataError(tr("--data-path: {} does not exist", file.string()),
                    tr("a data set is named without .idx and .bin; `danlu preprocess` makes one "
                       "from text, and text files are not mixed with them"));
  }

  std::map<std::string, std::shared_ptr<const IndexedDataset>> open_;
};

const std::string kMoreData = tr("change --split, or use a larger data set");

/// A data set of a split without a sample: an error in training, else a warning.
void report_empty(const std::string& message, DatasetSplit split) {
  if (split == DatasetSplit::kTrain) throw DataError(message, kMoreData);
  log::warning("{}", message);
}

/// The sequences of a split; none, with a warning, if there are none.
std::optional<IdRange> exposed_range(OpenDatasets& datasets, const std::string& prefix,
                                     const SplitMatrix& matrix, DatasetSplit split) {
  const int64_t count = datasets.open(prefix)->num_sequences();
  const IdRange exposed = split_range(matrix, split, count).value();
  if (exposed.size() > 0) return exposed;
  report_empty(
      tr("{}: the {} split has none of the {} sequences", prefix, split_name(split), count), split);
  return std::nullopt;
}

/// Null, with a warning, if the sequences are too short for a sample.
std::shared_ptr<const GptDataset> open_one(OpenDatasets& datasets, const std::string& prefix,
                                           IdRange exposed, DatasetSplit split,
                                           std::optional<int64_t> size, const GptOptions& options) {
  const auto tokens = datasets.open(prefix);
  int64_t num_tokens = 0;
  for (int64_t i = exposed.begin; i < exposed.end; ++i) num_tokens += tokens->length(i);
  if (num_tokens > 0) {
    auto one = std::make_shared<const GptDataset>(options, prefix, tokens, exposed, split, size);
    if (one->size() > 0) return one;
  }
  report_empty(tr("{}: the {} split has no sample of {} tokens: its {} sequences hold {}", prefix,
                  split_name(split), options.sequence_length, exposed.size(), num_tokens),
               split);
  return nullptr;
}

/// The members of a blend that have something in this split.
struct Members {
  std::vector<std::string> prefixes;
  std::vector<IdRange> exposed;
  std::vector<double> weights;  ///< normalised; empty: none given

  void erase(size_t at) {
    const auto offset = static_cast<std::ptrdiff_t>(at);
    prefixes.erase(prefixes.begin() + offset);
    exposed.erase(exposed.begin() + offset);
    if (weights.empty()) return;
    weights.erase(weights.begin() + offset);
    weights = normalize_weights(weights);
  }
};

Members members_in(OpenDatasets& datasets, const BlendSpec& blend, const SplitMatrix& matrix,
                   DatasetSplit split) {
  Members members;
  for (size_t i = 0; i < blend.prefixes.size(); ++i) {
    const auto exposed = exposed_range(datasets, blend.prefixes[i], matrix, split);
    if (!exposed) continue;
    members.prefixes.push_back(blend.prefixes[i]);
    members.exposed.push_back(*exposed);
    if (blend.weights) members.weights.push_back((*blend.weights)[i]);
  }
  if (!members.weights.empty()) members.weights = normalize_weights(members.weights);
  return members;
}

[[noreturn]] void weights_need_size(DatasetSplit split) {
  const bool training = split == DatasetSplit::kTrain;
  const char* flag = training ? "--train-iters" : "--eval-iters";
  throw UsageError(tr("--data-path: weights need a number of {} samples", split_name(split)),
                   tr("say how many batches to draw with {} N{}, or leave the weights out", flag,
                      training ? "" : ", hold nothing out with --split 100,0,0"));
}

/// Asks each member for as many samples as the blend needs: one epoch where there are no weights.
std::vector<std::optional<int64_t>> samples_wanted(const Members& members,
                                                   std::optional<int64_t> size) {
  if (members.weights.empty()) {
    return std::vector<std::optional<int64_t>>(members.prefixes.size());
  }
  const std::vector<int64_t> sizes = blend_sizes(members.weights, *size);
  return {sizes.begin(), sizes.end()};
}

/// Null where no member has a sample.
std::shared_ptr<const SampleSource> open_blend(OpenDatasets& datasets, const BlendSpec& blend,
                                               const SplitMatrix& matrix, DatasetSplit split,
                                               std::optional<int64_t> size,
                                               const GptOptions& options) {
  if (blend.weights && !size) weights_need_size(split);
  Members members = members_in(datasets, blend, matrix, split);
  std::vector<std::shared_ptr<const SampleSource>> sources;
  std::vector<std::optional<int64_t>> wanted;
  Json identities;
  const auto open_all = [&] {
    sources.clear();
    identities = Json::array();
    wanted = samples_wanted(members, size);
    for (size_t i = 0; i < members.prefixes.size(); ++i) {
      auto one =
          open_one(datasets, members.prefixes[i], members.exposed[i], split, wanted[i], options);
      if (!one) return i;
      identities.push_back(one->identity());
      sources.push_back(std::move(one));
    }
    return members.prefixes.size();
  };
  // The shares of the others grow by what a member without a sample leaves.
  for (size_t done = open_all(); done < members.prefixes.size(); done = open_all()) {
    members.erase(done);
  }
  if (sources.empty()) return nullptr;
  std::vector<double> weights = members.weights;
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

/// split_text empty: each split has data sets of its own.
[[noreturn]] void throw_no_training_data(const std::string& split_text) {
  if (split_text.empty()) {
    throw DataError(tr("--train-data-path: the training split is empty"),
                    tr("name the data sets to train on"));
  }
  throw DataError(tr("--split {}: the training split is empty", split_text),
                  tr("the first share is for training, for example --split 99,1,0"));
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
            ? tr("--data-path and --train-data-path/--valid-data-path/--test-data-path exclude "
                 "each other")
            : tr("--data-path: no data set given"));
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
    if (!single) {
      splits[at] = open_blend(datasets, blend, matrix, split, sizes[at], own);
    } else if (const auto exposed = exposed_range(datasets, blend.prefixes[0], matrix, split)) {
      splits[at] = open_one(datasets, blend.prefixes[0], *exposed, split, sizes[at], own);
    }
  }
  if (!splits[0]) throw_no_training_data(any_per_split ? "" : options.split_text);
  return splits;
}

}  // namespace danlu::data
