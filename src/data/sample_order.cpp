#include "data/sample_order.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/rng.h"
#include "data/sample_source.h"

namespace danlu::data {
namespace {

constexpr int kRounds = 6;
// Halves of at least five bits: with fewer a Feistel network has too few distinct permutations.
constexpr int kMinHalfBits = 5;

}  // namespace

SampleOrder::SampleOrder(int64_t num_samples, uint64_t seed, bool shuffle)
    : num_samples_(num_samples), seed_(seed), shuffle_(shuffle), half_bits_(kMinHalfBits) {
  if (num_samples < 1) throw DataError("[sample_order] the data set has no sample");
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
  const int64_t epoch = global_index / num_samples_, position = global_index % num_samples_;
  if (!shuffle_) return position;
  const uint64_t key = mix64(seed_, static_cast<uint64_t>(epoch));
  // The network permutes a power of four; walking on until the value is in range permutes [0, n).
  auto value = static_cast<uint64_t>(position);
  do {
    value = permute(value, key);
  } while (value >= static_cast<uint64_t>(num_samples_));
  return static_cast<int64_t>(value);
}

LengthGroupedOrder::LengthGroupedOrder(SampleOrder order,
                                       std::shared_ptr<const SampleSource> source,
                                       int64_t batch_size, int64_t window_batches, uint64_t seed)
    : order_(order),
      source_(std::move(source)),
      batch_size_(batch_size),
      window_size_(batch_size * window_batches),
      seed_(seed) {
  if (batch_size < 1 || window_batches < 1) {
    throw UsageError(fmt::format("[length_grouped_order] batch of {} samples, window of {} batches",
                                 batch_size, window_batches));
  }
}

std::vector<int64_t> LengthGroupedOrder::window(int64_t epoch, int64_t window_number) const {
  const int64_t num_samples = order_.num_samples();
  const int64_t begin = window_number * window_size_;
  const int64_t end = std::min(begin + window_size_, num_samples);
  std::vector<std::pair<int64_t, int64_t>> by_length;  // (-length, sample)
  for (int64_t i = begin; i < end; ++i) {
    const int64_t sample = order_.at(epoch * num_samples + i);
    by_length.emplace_back(-source_->length(sample), sample);
  }
  std::stable_sort(by_length.begin(), by_length.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  // A short batch stays last, else it would end up in the middle of an epoch.
  const auto full = static_cast<size_t>((end - begin) / batch_size_);
  std::vector<size_t> places(full);
  for (size_t i = 0; i < full; ++i) places[i] = i;
  const uint64_t key =
      mix64(mix64(seed_, static_cast<uint64_t>(epoch)), static_cast<uint64_t>(window_number));
  for (size_t i = full; i-- > 1;) std::swap(places[i], places[mix64(key, i) % (i + 1)]);
  std::vector<int64_t> samples;
  samples.reserve(by_length.size());
  const auto take = [&](size_t batch) {
    const size_t from = batch * static_cast<size_t>(batch_size_);
    const size_t to = std::min(from + static_cast<size_t>(batch_size_), by_length.size());
    for (size_t i = from; i < to; ++i) samples.push_back(by_length[i].second);
  };
  for (const size_t batch : places) take(batch);
  take(full);
  return samples;
}

int64_t LengthGroupedOrder::at(int64_t global_index) const {
  const int64_t epoch = global_index / order_.num_samples();
  const int64_t position = global_index % order_.num_samples();
  const std::lock_guard lock(last_->mutex);
  if (last_->epoch != epoch || last_->number != position / window_size_) {
    last_->samples = window(epoch, position / window_size_);
    last_->epoch = epoch;
    last_->number = position / window_size_;
  }
  return last_->samples[static_cast<size_t>(position % window_size_)];
}

}  // namespace danlu::data
