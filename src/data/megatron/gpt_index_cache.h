// data/megatron/gpt_index_cache.h: GPT indices kept as .npy files under the names Megatron uses.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "data/megatron/gpt_index.h"

namespace danlu::data {

/// Read access to document, sample and shuffle index, in memory or mapped. Thread-safe.
class GptIndexView {
 public:
  virtual ~GptIndexView() = default;
  virtual int64_t num_samples() const = 0;
  virtual int64_t num_documents() const = 0;
  virtual int64_t document(int64_t position) const = 0;
  /// Row of the sample index: position in the document index, token offset.
  virtual std::pair<int64_t, int64_t> row(int64_t sample) const = 0;
  virtual int64_t shuffled(int64_t sample) const = 0;
};

/// Where cached indices lie: `<directory>/<stem>-{description.txt,document_index.npy,…}`.
struct GptCacheName {
  std::filesystem::path directory;
  std::string stem;         ///< "<md5>-GPTDataset-<split>"
  std::string description;  ///< the text whose md5 is in the stem
};

/// What `view` has that build_gpt_indices cannot have made of these arguments; "" if it fits them:
/// then every sample lies inside the exposed sequences and has its length. Not whether the order is
/// that of the seed. Walks through documents and samples once.
std::string find_misfit(const GptIndexView& view, std::span<const int32_t> lengths, IdRange exposed,
                        const GptIndexOptions& options);

/// Maps the cache if all four files are there and fit `lengths`, `exposed` and `options`; else
/// builds the indices and writes them. A cache that does not fit (damaged, or the data set was
/// written anew) and a directory that cannot be written are warnings. No name: builds only.
std::unique_ptr<GptIndexView> open_gpt_indices(const std::optional<GptCacheName>& cache,
                                               std::span<const int32_t> lengths, IdRange exposed,
                                               const GptIndexOptions& options);

/// Writes the four files, description last, so that a hit is complete. Errors: IoError.
void save_gpt_indices(const GptCacheName& cache, const GptIndices& indices);

}  // namespace danlu::data
