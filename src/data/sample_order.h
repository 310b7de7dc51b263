// data/sample_order.h: the order in which training sees samples, as a function of one number.
#pragma once
#include <cstdint>

namespace danlu::data {

/// The order of samples as a pure function of the global sample index, so that resuming needs only
/// a number. Epoch e is a permutation drawn from (seed, e), or file order; with same_every_epoch
/// all have epoch 0's. No table: any position costs the same, whatever the size. Thread-safe.
class SampleOrder {
 public:
  /// Errors: DataError if num_samples < 1.
  SampleOrder(int64_t num_samples, uint64_t seed, bool shuffle, bool same_every_epoch = false);
  /// Sample to use at position `global_index` of the endless stream of epochs.
  int64_t at(int64_t global_index) const;
  int64_t num_samples() const { return num_samples_; }

 private:
  uint64_t permute(uint64_t position, uint64_t key) const;
  int64_t num_samples_;
  uint64_t seed_;
  bool shuffle_, same_every_epoch_;
  int half_bits_;
};

}  // namespace danlu::data
