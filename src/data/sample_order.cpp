#include "data/sample_order.h"

#include "base/error.h"
#include "base/rng.h"

namespace danlu::data {
namespace {

constexpr int kRounds = 6;
// Halves of at least five bits: with fewer a Feistel network has too few distinct permutations.
constexpr int kMinHalfBits = 5;

}  // namespace

SampleOrder::SampleOrder(int64_t num_samples, uint64_t seed, bool shuffle, bool same_every_epoch)
    : num_samples_(num_samples),
      seed_(seed),
      shuffle_(shuffle),
      same_every_epoch_(same_every_epoch),
      half_bits_(kMinHalfBits) {
  if (num_samples < 1) throw DataError(tr("[sample_order] the data set has no sample"));
  while (half_bits_ < 31 &&
         (uint64_t{1} << (2 * half_bits_)) < static_cast<uint64_t>(num_samples)) {
    ++half_bits_;
  }
}

uint64_t SampleOrder::permute(uint64_t position, uint64_t key) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = position >> half_bits_, right = position & mask;
  for (uint64_t round = 0; round < kRounds; ++round) {
    const uint64_t next = left ^ (mix64(key, right * kRounds + round) & mask);
    left = right;
    right = next;
  }
  return left << half_bits_ | right;
}

int64_t SampleOrder::at(int64_t global_index) const {
  const int64_t epoch = same_every_epoch_ ? 0 : global_index / num_samples_,
                position = global_index % num_samples_;
  if (!shuffle_) return position;
  const uint64_t key = mix64(seed_, static_cast<uint64_t>(epoch));
  // The network permutes a power of four; walking on until the value is in range permutes [0, n).
  auto value = static_cast<uint64_t>(position);
  do {
    value = permute(value, key);
  } while (value >= static_cast<uint64_t>(num_samples_));
  return static_cast<int64_t>(value);
}

}  // namespace danlu::data
