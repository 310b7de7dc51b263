// data/sample_order.h: the order in which training sees samples, as a function of one number.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace danlu::data {

class SampleSource;

/// The order of samples as a pure function of the global sample index, so that resuming needs only
/// a number. Epoch e is a permutation drawn from (seed, e), or file order. No table: any position
/// costs the same, whatever the size. Thread-safe.
class SampleOrder {
 public:
  /// Errors: DataError if num_samples < 1.
  SampleOrder(int64_t num_samples, uint64_t seed, bool shuffle);
  /// Sample to use at position `global_index` of the endless stream of epochs.
  int64_t at(int64_t global_index) const;
  int64_t num_samples() const { return num_samples_; }

 private:
  uint64_t permute(uint64_t position, uint64_t key) const;
  int64_t num_samples_;
  uint64_t seed_;
  bool shuffle_;
  int half_bits_;
};

/// Another order in which samples of similar length share a batch: within windows of
/// `window_batches` batches of one epoch samples are sorted by length, cut into batches, and the
/// batches shuffled. Still a pure function of (seed, global index). Thread-safe.
class LengthGroupedOrder {
 public:
  LengthGroupedOrder(SampleOrder order, std::shared_ptr<const SampleSource> source,
                     int64_t batch_size, int64_t window_batches, uint64_t seed);
  int64_t at(int64_t global_index) const;

 private:
  std::vector<int64_t> window(int64_t epoch, int64_t window_number) const;

  struct LastWindow {
    std::mutex mutex;
    int64_t epoch = -1, number = -1;
    std::vector<int64_t> samples;
  };
  SampleOrder order_;
  std::shared_ptr<const SampleSource> source_;
  int64_t batch_size_, window_size_;
  uint64_t seed_;
  std::shared_ptr<LastWindow> last_ = std::make_shared<LastWindow>();
};

}  // namespace danlu::data
