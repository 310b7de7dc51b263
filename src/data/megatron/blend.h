// data/megatron/blend.h: several data sets mixed by weight, in Megatron's order.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "data/megatron/splits.h"
#include "data/sample_source.h"

namespace danlu::data {

/// Entry s of the blend is sample `sample[s]` of data set `dataset[s]`.
struct BlendIndices {
  std::vector<int16_t> dataset;
  std::vector<int64_t> sample;
};

/// Picks at each step the data set that is furthest behind its share; the first one wins a tie.
/// REQUIRES: weights sum to 1. Errors: UsageError for none, for more than 32766, or a weight <= 0.
BlendIndices build_blend(std::span<const double> weights, int64_t size);
/// Spends every data set exactly.
BlendIndices build_exhaustive_blend(std::span<const int64_t> sizes);

/// --data-path: prefixes, or weight-prefix pairs.
struct BlendSpec {
  std::vector<std::string> prefixes;
  std::optional<std::vector<double>> weights;  ///< as given, not normalised
  bool operator==(const BlendSpec&) const = default;
};

/// Items as typed: one that names no file and holds several words ("0.3 A 0.7 B" in quotes) is
/// cut at its blanks.
std::vector<std::string> blend_items(const std::vector<std::string>& given);

/// Takes blend_items(given). Errors: UsageError naming the item if the list is empty, mixes
/// weighted and unweighted prefixes, or has a number where a prefix belongs and no file is so
/// named.
BlendSpec parse_blend(const std::vector<std::string>& given);

/// Samples to prepare of each data set so that the blend does not run dry: ceil(target·w·1.005).
std::vector<int64_t> blend_sizes(std::span<const double> weights, int64_t target);

/// A blend of sample sources. Thread-safe.
class BlendedSource : public SampleSource {
 public:
  /// size none: every source is spent exactly and `weights` are ignored in favour of their sizes.
  /// identities: the sources' own identities, hashed into the cache name.
  /// cache_dir empty: not cached.
  /// Errors: DataError if the blend asks for more samples than a source has.
  BlendedSource(std::vector<std::shared_ptr<const SampleSource>> sources,
                std::vector<double> weights, std::optional<int64_t> size, const Json& identities,
                DatasetSplit split, const std::filesystem::path& cache_dir);

  int64_t size() const override { return static_cast<int64_t>(indices_.dataset.size()); }
  /// get and length: InternalError if `index` is not in [0, size()).
  Sample get(int64_t index) const override;
  int64_t length(int64_t index) const override;
  uint64_t content_hash() const override;
  const BlendIndices& indices() const { return indices_; }
  /// The object whose md5 names the cache.
  const Json& identity() const { return identity_; }

 private:
  size_t entry(int64_t index) const;

  std::vector<std::shared_ptr<const SampleSource>> sources_;
  Json identity_;
  BlendIndices indices_;
};

}  // namespace danlu::data
