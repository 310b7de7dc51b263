// data/megatron/splits.h: which sequences of a data set are for training, validation and test.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace danlu::data {

enum class DatasetSplit { kTrain = 0, kValid = 1, kTest = 2 };
inline constexpr std::array<DatasetSplit, 3> kSplits{DatasetSplit::kTrain, DatasetSplit::kValid,
                                                     DatasetSplit::kTest};
/// "train", "valid", "test".
std::string_view split_name(DatasetSplit split);

/// Share [low, high) of the sequences per split; none: the split is absent.
using SplitMatrix = std::array<std::optional<std::pair<double, double>>, 3>;

/// Half-open range of sequence (or document) numbers.
struct IdRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const IdRange&) const = default;
};

/// "99,1,0" (any separator) to cumulative shares, in Megatron core's arithmetic.
/// Errors: UsageError naming the text if it holds no number, more than three, or only zeros.
SplitMatrix parse_split(std::string_view text);

/// Range of a split among `count` sequences, rounded half to even as Python does; none if absent.
std::optional<IdRange> split_range(const SplitMatrix& matrix, DatasetSplit split, int64_t count);

/// The older splitter (`,` or `/`), which MindSpeed-LLM still applies to documents of instruction
/// data. Errors: UsageError as parse_split.
std::array<IdRange, 3> legacy_split_ranges(std::string_view text, int64_t count);

/// Sum in the order numpy adds: pairwise with eight running sums, so that quotients agree to the
/// bit.
double numpy_sum(std::span<const double> values);
/// values / numpy_sum(values).
std::vector<double> normalize_weights(std::span<const double> values);

}  // namespace danlu::data
