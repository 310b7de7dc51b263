// data/megatron/gpt_splits.h: training, validation and test data of a GPT pre-training run.
#pragma once
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/megatron/gpt_dataset.h"
#include "data/megatron/splits.h"
#include "data/sample_source.h"

namespace danlu::data {

/// Which data sets a run reads, as Megatron's flags say it.
struct GptDataPaths {
  std::vector<std::string> all;                       ///< --data-path; cut by --split
  std::array<std::vector<std::string>, 3> per_split;  ///< --train-, --valid-, --test-data-path
};

/// Samples wanted per split; none: as many as one epoch holds.
using SplitSizes = std::array<std::optional<int64_t>, 3>;

/// Megatron's counts: train_iters·gbs, (train_iters / eval_interval + 1)·eval_iters·gbs,
/// eval_iters·gbs.
SplitSizes gpt_split_sizes(int64_t train_samples, int64_t train_iters, int64_t eval_interval,
                           int64_t eval_iters, int64_t global_batch_size);

/// One source per split; the training one is never null, the others are where the split is absent
/// or has no sample (a warning says so). A member of a blend without a validation or test sample is
/// passed over with a warning, and the others keep their shares of what is left.
/// Errors: UsageError if both or neither kind of path is given, or weights come without a size;
/// DataError if the training split or a member's part of it is empty, or a file is missing; as
/// parse_blend and IndexedDataset.
std::array<std::shared_ptr<const SampleSource>, 3> open_gpt_splits(const GptDataPaths& paths,
                                                                   const SplitSizes& sizes,
                                                                   const GptOptions& options);

}  // namespace danlu::data
