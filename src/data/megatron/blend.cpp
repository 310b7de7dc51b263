#include "data/megatron/blend.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <iterator>
#include <numeric>
#include <sstream>

#include "base/error.h"
#include "base/log.h"
#include "data/megatron/gpt_dataset.h"
#include "data/megatron/md5.h"
#include "data/megatron/npy.h"
#include "data/megatron/python_json.h"

namespace danlu::data {
namespace {

constexpr size_t kMaxDatasets = 32766;  // the data set number is stored in 16 signed bits

void require_blendable(size_t num_datasets) {
  if (num_datasets == 0 || num_datasets > kMaxDatasets) {
    throw UsageError(
        tr("[blend] 1..{} data sets can be blended, got {}", kMaxDatasets, num_datasets));
  }
}

// How far a data set is behind its share. Kept out of line and in two roundings: a fused
// multiply-subtract would break ties differently.
[[gnu::noinline]] double shortfall(double weight, double step, double taken) {
  volatile double share = weight * step;
  return share - taken;
}

std::optional<double> parse_weight(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front())))
    text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())))
    text.remove_suffix(1);
  if (!text.empty() && text.front() == '+') text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool names_path(const std::string& item) {
  std::error_code ignored;
  return fs::exists(item, ignored) || fs::exists(index_path(item), ignored);
}

/// Prefixes alone. A number there is a weight out of place, unless files have that name.
BlendSpec unweighted(const std::vector<std::string>& items) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (!parse_weight(items[i]) || names_path(items[i])) continue;
    throw UsageError(tr("--data-path: weights and prefixes alternate, item {} is the number {}",
                        i + 1, items[i]),
                     tr("give a weight before each prefix (--data-path 0.3 A 0.7 B), or none "
                        "(--data-path A B)"));
  }
  return {items, std::nullopt};
}

struct BlendCache {
  BlendCache(const fs::path& directory, const std::string& description, DatasetSplit split) {
    const std::string stem =
        fmt::format("{}-BlendedDataset-{}-", md5_hex(description), split_name(split));
    text = directory / (stem + "description.txt");
    dataset = directory / (stem + "dataset_index.npy");
    sample = directory / (stem + "dataset_sample_index.npy");
  }
  fs::path text, dataset, sample;
};

/// Errors: DataError saying what cannot be a blend of `size` samples from sources of `sizes`.
BlendIndices read_blend(const BlendCache& cache, int64_t size, std::span<const int64_t> sizes) {
  const NpyFile dataset(cache.dataset), sample(cache.sample);
  for (const NpyFile* file : {&dataset, &sample}) {
    if (file->shape().rows != size || file->shape().columns != 0) {
      throw DataError(tr("{}: has {} entries, the blend has {}",
                         (file == &dataset ? cache.dataset : cache.sample).string(),
                         file->shape().size(), size));
    }
  }
  BlendIndices indices;
  for (int64_t i = 0; i < size; ++i) {
    const int64_t source = dataset.at(i);
    if (source < 0 || source >= std::ssize(sizes) || sample.at(i) < 0 ||
        sample.at(i) >= sizes[static_cast<size_t>(source)]) {
      throw DataError(tr("{}: entry {} is sample {} of data set {}", cache.sample.string(), i,
                         sample.at(i), source));
    }
    indices.dataset.push_back(static_cast<int16_t>(source));
    indices.sample.push_back(sample.at(i));
  }
  return indices;
}

std::optional<BlendIndices> load_blend(const BlendCache& cache, int64_t size,
                                       std::span<const int64_t> sizes) {
  if (!fs::exists(cache.text) || !fs::exists(cache.dataset) || !fs::exists(cache.sample)) {
    return std::nullopt;
  }
  try {
    return read_blend(cache, size, sizes);
  } catch (const DataError& error) {
    log::warning("the cached blend does not fit the data and is built again: {}", error.what());
    return std::nullopt;
  }
}

void save_blend(const BlendCache& cache, const BlendIndices& indices,
                const std::string& description) {
  try {
    require_writable_directory(cache.text.parent_path());
    const NpyShape shape{static_cast<int64_t>(indices.dataset.size()), 0};
    write_npy<int16_t>(cache.dataset, indices.dataset, shape);
    write_npy<int64_t>(cache.sample, indices.sample, shape);
    write_file_atomic(cache.text, description);
  } catch (const IoError& error) {
    log::warning("the blend is not cached: {}", error.what());
  }
}

}  // namespace

BlendIndices build_blend(std::span<const double> weights, int64_t size) {
  require_blendable(weights.size());
  for (size_t i = 0; i < weights.size(); ++i) {
    if (!(weights[i] > 0)) {
      throw UsageError(tr("[blend] weight {} of data set {} must be above 0", weights[i], i));
    }
  }
  BlendIndices indices;
  indices.dataset.reserve(static_cast<size_t>(size));
  indices.sample.reserve(static_cast<size_t>(size));
  std::vector<int64_t> taken(weights.size(), 0);
  for (int64_t s = 0; s < size; ++s) {
    const auto step = static_cast<double>(std::max<int64_t>(s, 1));
    size_t best = 0;
    double largest = shortfall(weights[0], step, static_cast<double>(taken[0]));
    for (size_t i = 1; i < weights.size(); ++i) {
      const double behind = shortfall(weights[i], step, static_cast<double>(taken[i]));
      if (behind > largest) {
        largest = behind;
        best = i;
      }
    }
    indices.dataset.push_back(static_cast<int16_t>(best));
    indices.sample.push_back(taken[best]++);
  }
  return indices;
}

BlendIndices build_exhaustive_blend(std::span<const int64_t> sizes) {
  require_blendable(sizes.size());
  int64_t total = 0;
  for (const int64_t size : sizes) total += size;
  BlendIndices indices;
  std::vector<int64_t> taken(sizes.size(), 0);
  for (int64_t s = 0; s < total; ++s) {
    const auto step = static_cast<double>(std::max<int64_t>(s, 1));
    std::optional<size_t> best;
    double largest = 0;
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (taken[i] == sizes[i]) continue;
      const double weight = static_cast<double>(sizes[i]) / static_cast<double>(total);
      const double behind = shortfall(weight, step, static_cast<double>(taken[i]));
      if (!best || behind > largest) {
        largest = behind;
        best = i;
      }
    }
    indices.dataset.push_back(static_cast<int16_t>(*best));
    indices.sample.push_back(taken[*best]++);
  }
  return indices;
}

std::vector<std::string> blend_items(const std::vector<std::string>& given) {
  std::vector<std::string> items;
  for (const std::string& item : given) {
    std::istringstream words(item);
    std::vector<std::string> parts{std::istream_iterator<std::string>(words), {}};
    if (parts.size() < 2 || names_path(item)) {
      items.push_back(item);
    } else {
      items.insert(items.end(), parts.begin(), parts.end());
    }
  }
  return items;
}

BlendSpec parse_blend(const std::vector<std::string>& given) {
  if (given.empty()) throw UsageError(tr("--data-path: no data set given"));
  const std::vector<std::string> items = blend_items(given);
  if (items.size() % 2 == 1) return unweighted(items);
  std::vector<double> weights;
  std::vector<std::string> prefixes;
  for (size_t i = 0; i < items.size(); i += 2) {
    if (const auto weight = parse_weight(items[i])) weights.push_back(*weight);
    const size_t begin = items[i + 1].find_first_not_of(" \t");
    const size_t end = items[i + 1].find_last_not_of(" \t");
    prefixes.push_back(begin == std::string::npos ? ""
                                                  : items[i + 1].substr(begin, end - begin + 1));
  }
  if (weights.empty()) return unweighted(items);
  if (weights.size() != prefixes.size()) {
    throw UsageError(
        tr("--data-path: {} of {} items in weight position are numbers; give a "
           "weight before each prefix, or none",
           weights.size(), prefixes.size()));
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    if (!(weights[i] > 0) || !std::isfinite(weights[i])) {
      throw UsageError(tr("--data-path: weight {} of {} must be above 0", weights[i], prefixes[i]));
    }
  }
  return {std::move(prefixes), std::move(weights)};
}

std::vector<int64_t> blend_sizes(std::span<const double> weights, int64_t target) {
  std::vector<int64_t> sizes;
  for (const double weight : weights) {
    sizes.push_back(static_cast<int64_t>(std::ceil(static_cast<double>(target) * weight * 1.005)));
  }
  return sizes;
}

BlendedSource::BlendedSource(std::vector<std::shared_ptr<const SampleSource>> sources,
                             std::vector<double> weights, std::optional<int64_t> size,
                             const Json& identities, DatasetSplit split, const fs::path& cache_dir)
    : sources_(std::move(sources)) {
  require_blendable(sources_.size());
  std::vector<int64_t> sizes;
  sizes.reserve(sources_.size());
  for (const auto& source : sources_) sizes.push_back(source->size());
  if (size) weights = normalize_weights(weights);
  identity_["class"] = "BlendedDataset";
  identity_["datasets"] = identities;
  identity_["split"] = split_name(split);
  identity_["weights"] = size ? Json(weights) : Json(sizes);
  identity_["size"] = size ? Json(*size) : Json(nullptr);

  const std::string description = python_json(identity_);
  std::optional<BlendCache> cache;
  std::optional<BlendIndices> cached;
  if (!cache_dir.empty()) {
    cache.emplace(cache_dir, description, split);
    const int64_t total = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
    cached = load_blend(*cache, size.value_or(total), sizes);
  }
  indices_ = cached ? std::move(*cached)
             : size ? build_blend(weights, *size)
                    : build_exhaustive_blend(sizes);
  for (size_t s = 0; s < indices_.dataset.size(); ++s) {
    const auto dataset = static_cast<size_t>(indices_.dataset[s]);
    if (indices_.sample[s] >= sizes[dataset]) {
      throw DataError(tr("[blend] entry {} asks for sample {} of data set {}, which has {}", s,
                         indices_.sample[s], dataset, sizes[dataset]));
    }
  }
  if (cache && !cached) save_blend(*cache, indices_, description);
}

size_t BlendedSource::entry(int64_t index) const {
  if (index < 0 || index >= size()) {
    throw InternalError(fmt::format("[blend] sample {} of {}", index, size()));
  }
  return static_cast<size_t>(index);
}

Sample BlendedSource::get(int64_t index) const {
  const size_t at = entry(index);
  return sources_[static_cast<size_t>(indices_.dataset[at])]->get(indices_.sample[at]);
}

int64_t BlendedSource::length(int64_t index) const {
  const size_t at = entry(index);
  return sources_[static_cast<size_t>(indices_.dataset[at])]->length(indices_.sample[at]);
}

uint64_t BlendedSource::content_hash() const {
  uint64_t hash = hash_bytes(python_json(content_identity(identity_)));
  for (const auto& source : sources_) {
    const uint64_t part = source->content_hash();
    hash = hash_bytes({reinterpret_cast<const char*>(&part), sizeof part}, hash);
  }
  return hash;
}

}  // namespace danlu::data
