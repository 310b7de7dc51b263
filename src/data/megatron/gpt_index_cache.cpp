#include "data/megatron/gpt_index_cache.h"

#include <fmt/format.h>

#include <limits>

#include "base/error.h"
#include "base/log.h"
#include "data/megatron/npy.h"

namespace danlu::data {
namespace {

struct CacheFiles {
  explicit CacheFiles(const GptCacheName& name)
      : description(name.directory / (name.stem + "-description.txt")),
        documents(name.directory / (name.stem + "-document_index.npy")),
        samples(name.directory / (name.stem + "-sample_index.npy")),
        shuffle(name.directory / (name.stem + "-shuffle_index.npy")) {}
  bool all_exist() const {
    return fs::is_regular_file(description) && fs::is_regular_file(documents) &&
           fs::is_regular_file(samples) && fs::is_regular_file(shuffle);
  }
  fs::path description, documents, samples, shuffle;
};

class BuiltView : public GptIndexView {
 public:
  explicit BuiltView(GptIndices indices) : indices_(std::move(indices)) {}
  int64_t num_samples() const override { return indices_.num_samples(); }
  int64_t num_documents() const override { return static_cast<int64_t>(indices_.documents.size()); }
  int64_t document(int64_t position) const override {
    return indices_.documents[static_cast<size_t>(position)];
  }
  std::pair<int64_t, int64_t> row(int64_t sample) const override {
    const auto at = static_cast<size_t>(sample) * 2;
    return {indices_.samples[at], indices_.samples[at + 1]};
  }
  int64_t shuffled(int64_t sample) const override {
    return indices_.shuffle[static_cast<size_t>(sample)];
  }

 private:
  GptIndices indices_;
};

class MappedView : public GptIndexView {
 public:
  explicit MappedView(const CacheFiles& files)
      : documents_(files.documents), samples_(files.samples), shuffle_(files.shuffle) {
    const auto unfit = [](const fs::path& file, const std::string& what) {
      throw DataError(
          fmt::format("{}: {}", file.string(), what),
          {"delete the cache directory; it is built again", "请删除缓存目录，程序会重新生成"});
    };
    if (samples_.shape().columns != 2 || samples_.shape().rows < 1) {
      unfit(files.samples, "must have two columns and at least one row");
    }
    if (shuffle_.shape().columns != 0 || shuffle_.shape().rows != samples_.shape().rows - 1) {
      unfit(files.shuffle, fmt::format("has {} entries, {} samples are indexed",
                                       shuffle_.shape().rows, samples_.shape().rows - 1));
    }
    if (documents_.shape().columns != 0) unfit(files.documents, "must have one dimension");
  }
  int64_t num_samples() const override { return shuffle_.shape().rows; }
  int64_t num_documents() const override { return documents_.shape().rows; }
  int64_t document(int64_t position) const override { return documents_.at(position); }
  std::pair<int64_t, int64_t> row(int64_t sample) const override {
    return {samples_.at(2 * sample), samples_.at(2 * sample + 1)};
  }
  int64_t shuffled(int64_t sample) const override { return shuffle_.at(sample); }

 private:
  NpyFile documents_, samples_, shuffle_;
};

}  // namespace

void save_gpt_indices(const GptCacheName& cache, const GptIndices& indices) {
  const CacheFiles files(cache);
  require_writable_directory(cache.directory);
  const NpyShape documents{static_cast<int64_t>(indices.documents.size()), 0};
  const NpyShape samples{indices.num_samples() + 1, 2};
  const NpyShape shuffle{indices.num_samples(), 0};
  write_npy<int32_t>(files.documents, indices.documents, documents);
  write_npy<int64_t>(files.samples, indices.samples, samples);
  // numpy's uint32 maximum minus one: from there Megatron switches to int64.
  if (indices.num_samples() >= static_cast<int64_t>(std::numeric_limits<uint32_t>::max()) - 1) {
    write_npy<int64_t>(files.shuffle, indices.shuffle, shuffle);
  } else {
    const std::vector<uint32_t> narrow(indices.shuffle.begin(), indices.shuffle.end());
    write_npy<uint32_t>(files.shuffle, narrow, shuffle);
  }
  write_file_atomic(files.description, cache.description);
}

std::unique_ptr<GptIndexView> open_gpt_indices(const std::optional<GptCacheName>& cache,
                                               const std::function<GptIndices()>& build) {
  if (cache && CacheFiles(*cache).all_exist()) {
    return std::make_unique<MappedView>(CacheFiles(*cache));
  }
  GptIndices indices = build();
  if (cache) {
    try {
      save_gpt_indices(*cache, indices);
    } catch (const IoError& error) {
      log::warning("sample order is not cached: {}", error.what());
    }
  }
  return std::make_unique<BuiltView>(std::move(indices));
}

}  // namespace danlu::data
