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
      throw DataError(tr("{}: {}", file.string(), what));
    };
    if (samples_.shape().columns != 2 || samples_.shape().rows < 1) {
      unfit(files.samples, "must have two columns and at least one row");
    }
    if (shuffle_.shape().columns != 0 || shuffle_.shape().rows != samples_.shape().rows - 1) {
      unfit(files.shuffle, tr("has {} entries, {} samples are indexed", shuffle_.shape().rows,
                              samples_.shape().rows - 1));
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

std::string find_misfit(const GptIndexView& view, std::span<const int32_t> lengths, IdRange exposed,
                        const GptIndexOptions& options) {
  const int64_t num_documents = view.num_documents(), num_samples = view.num_samples();
  const auto length_at = [&](int64_t position) -> int64_t {
    return lengths[static_cast<size_t>(view.document(position))];
  };
  int64_t total_tokens = 0;
  for (int64_t i = 0; i < num_documents; ++i) {
    const int64_t sequence = view.document(i);
    if (sequence < exposed.begin || sequence >= exposed.end) {
      return tr("document {} is sequence {}, not in [{}, {})", i, sequence, exposed.begin,
                exposed.end);
    }
    total_tokens += length_at(i);
  }
  if (const int64_t wanted = num_gpt_samples(total_tokens, options); num_samples != wanted) {
    return tr("{} samples, the data make {}", num_samples, wanted);
  }
  const int64_t extra = options.add_extra_token ? 1 : 0;
  std::pair<int64_t, int64_t> from = view.row(0);
  if (from != std::pair<int64_t, int64_t>(0, 0)) return "the first sample starts behind the data";
  for (int64_t i = 0; i < num_samples; from = view.row(++i)) {
    const auto [position, offset] = view.row(i + 1);
    if (position < from.first || position >= num_documents || offset + extra < 0 ||
        offset + extra > length_at(position)) {
      return tr("sample {} ends at token {} of document {}", i, offset, position);
    }
    int64_t tokens = offset - from.second;
    for (int64_t k = from.first; k < position; ++k) tokens += length_at(k);
    const bool at_end = position + 1 == num_documents && offset + extra == length_at(position);
    const bool may_be_shorter = at_end && !options.drop_last_partial;
    if (may_be_shorter ? tokens < -extra || tokens > options.sequence_length
                       : tokens != options.sequence_length) {
      return fmt::format("sample {} has {} tokens", i, tokens);
    }
    if (view.shuffled(i) < 0 || view.shuffled(i) >= num_samples) {
      return tr("shuffle entry {} is {}", i, view.shuffled(i));
    }
  }
  return "";
}

std::unique_ptr<GptIndexView> open_gpt_indices(const std::optional<GptCacheName>& cache,
                                               std::span<const int32_t> lengths, IdRange exposed,
                                               const GptIndexOptions& options) {
  if (cache && CacheFiles(*cache).all_exist()) {
    std::string fault;
    try {
      auto mapped = std::make_unique<MappedView>(CacheFiles(*cache));
      fault = find_misfit(*mapped, lengths, exposed, options);
      if (fault.empty()) return mapped;
      fault = fmt::format("{}: {}", (cache->directory / cache->stem).string(), fault);
    } catch (const DataError& error) {
      fault = error.what();
    }
    log::warning("the cached sample order does not fit the data and is built again: {}", fault);
  }
  GptIndices indices = build_gpt_indices(lengths, exposed, options);
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
