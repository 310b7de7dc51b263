// data/sample_source.h: random access to tokenised samples, and the order in which training sees them.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/batch.h"

namespace danlu::data {

/// Samples by index. Thread-safe.
class SampleSource {
 public:
  virtual ~SampleSource() = default;
  virtual int64_t size() const = 0;
  /// Errors: DataError naming file and index for damaged data.
  virtual Sample get(int64_t index) const = 0;
  /// Tokens of sample `index`, without reading them.
  virtual int64_t length(int64_t index) const = 0;
  /// Hash of the content: resuming checks that the data did not change.
  virtual uint64_t content_hash() const = 0;
};

/// The order of samples as a pure function of the global sample index, so that resuming needs only a
/// number. Epoch e is a permutation drawn from (seed, e), or file order.
class SampleOrder {
 public:
  SampleOrder(int64_t num_samples, uint64_t seed, bool shuffle);
  /// Sample to use at position `global_index` of the endless stream of epochs.
  int64_t at(int64_t global_index) const;

 private:
  int64_t num_samples_;
  uint64_t seed_;
  bool shuffle_;
  mutable std::shared_ptr<const std::pair<int64_t, std::vector<int64_t>>> epoch_;
};

}  // namespace danlu::data
