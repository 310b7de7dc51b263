// base/rng.h: random numbers that other systems' files depend on.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <utility>

namespace danlu {

/// numpy.random.RandomState(seed): MT19937, init_genrand seeding, legacy shuffle.
/// Source: reference behaviour of numpy's legacy generator; vectors in tests/base/rng_test.cpp.
class NumpyRandomState {
 public:
  explicit NumpyRandomState(uint32_t seed);
  uint32_t next_u32();
  /// Uniform in [0, max] by masked rejection, as RandomState.shuffle draws.
  uint64_t bounded(uint64_t max);
  /// Uniform in [0,1) with 53 bits (numpy's random_sample).
  double next_double();

  /// In-place Fisher-Yates from the back, as RandomState.shuffle on a 1-D array.
  template <typename T>
  void shuffle(std::span<T> values) {
    for (size_t i = values.size(); i-- > 1;) std::swap(values[i], values[bounded(i)]);
  }

 private:
  void refill();
  std::array<uint32_t, 624> state_{};
  int position_ = 624;
};

/// SplitMix64: one 64-bit value per (seed, index); our own streams (init, dropout seeds, order) use
/// it.
inline uint64_t mix64(uint64_t seed, uint64_t index) {
  uint64_t z = seed + (index + 1) * 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

}  // namespace danlu
