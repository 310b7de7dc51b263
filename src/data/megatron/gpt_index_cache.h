// data/megatron/gpt_index_cache.h: GPT indices kept as .npy files under the names Megatron uses.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

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

/// Maps the cache if all four files are there; else calls `build` and writes them (a warning, not
/// an error, if the directory cannot be written). No name: `build` only. Errors: DataError naming
/// the file if cached arrays do not fit together.
std::unique_ptr<GptIndexView> open_gpt_indices(const std::optional<GptCacheName>& cache,
                                               const std::function<GptIndices()>& build);

/// Writes the four files, description last, so that a hit is complete. Errors: IoError.
void save_gpt_indices(const GptCacheName& cache, const GptIndices& indices);

}  // namespace danlu::data
