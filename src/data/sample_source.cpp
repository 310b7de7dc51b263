#include "data/sample_source.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"

namespace danlu::data {
namespace {

template <typename T>
uint64_t hash_values(const std::vector<T>& values, uint64_t seed) {
  return hash_bytes({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)},
                    seed);
}

}  // namespace

uint64_t VectorSource::content_hash() const {
  uint64_t hash = hash_bytes("VectorSource");
  for (const Sample& sample : samples_) {
    // Sizes first: two samples must not hash like one longer sample.
    hash = hash_values(std::vector<uint64_t>{sample.ids.size(), sample.segments.size()}, hash);
    hash = hash_values(sample.ids, hash);
    hash = hash_values(sample.labels, hash);
    hash = hash_values(sample.segments, hash);
    hash = hash_values(sample.segment_values, hash);
    for (const auto& [name, values] : sample.token_columns)
      hash = hash_values(values, hash_bytes(name, hash));
  }
  return hash;
}

SelectedSource::SelectedSource(std::shared_ptr<const SampleSource> base, std::vector<int64_t> ids)
    : base_(std::move(base)), ids_(std::move(ids)) {
  for (const int64_t id : ids_) {
    if (id < 0 || id >= base_->size()) {
      throw InternalError(fmt::format("[selected_source] sample {} of {}", id, base_->size()));
    }
  }
}

uint64_t SelectedSource::content_hash() const { return hash_values(ids_, base_->content_hash()); }

}  // namespace danlu::data
