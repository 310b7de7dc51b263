// base/rng.h: random numbers that other systems' files depend on.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace danlu {

/// MT19937's words; how it is seeded is its users' affair.
class MersenneTwister {
 public:
  /// init_genrand: what numpy seeds with.
  explicit MersenneTwister(uint32_t seed);
  /// init_by_array: what CPython seeds with. REQUIRES: at least one word.
  explicit MersenneTwister(std::span<const uint32_t> key);
  uint32_t next_u32();
  /// Uniform in [0,1) with 53 bits.
  double next_double();

 private:
  void refill();
  std::array<uint32_t, 624> state_{};
  int position_ = 624;
};

/// numpy.random.RandomState(seed): MT19937, init_genrand seeding, legacy shuffle.
/// Source: reference behaviour of numpy's legacy generator; vectors in tests/base/rng_test.cpp.
class NumpyRandomState {
 public:
  explicit NumpyRandomState(uint32_t seed) : words_(seed) {}
  uint32_t next_u32() { return words_.next_u32(); }
  /// Uniform in [0, max] by masked rejection, as RandomState.shuffle draws.
  uint64_t bounded(uint64_t max);
  /// Uniform in [0,1) with 53 bits (numpy's random_sample).
  double next_double() { return words_.next_double(); }

  /// In-place Fisher-Yates from the back, as RandomState.shuffle on a 1-D array.
  template <typename T>
  void shuffle(std::span<T> values) {
    for (size_t i = values.size(); i-- > 1;) std::swap(values[i], values[bounded(i)]);
  }

 private:
  MersenneTwister words_;
};

/// Python's random.Random(seed) of an int, draw for draw as CPython 3.11 (its sample, which other
/// programs pick few-shot examples with, is the same from 3.0 to 3.13).
/// Source: reference behaviour of CPython; vectors in tests/base/python_random_test.cpp.
class PythonRandom {
 public:
  /// A negative seed is the same as the positive one.
  explicit PythonRandom(int64_t seed);
  /// random(): uniform in [0,1).
  double random() { return words_.next_double(); }
  /// getrandbits(count). REQUIRES 0 <= count <= 64.
  uint64_t getrandbits(int count);
  /// randrange(bound): uniform in [0, bound). REQUIRES bound > 0.
  uint64_t below(uint64_t bound);
  /// sample(range(size), count): the places that are drawn, in order. REQUIRES count <= size.
  std::vector<size_t> sample(size_t size, size_t count);
  /// choice(values). REQUIRES: not empty.
  template <typename T>
  const T& choice(std::span<const T> values) {
    return values[below(values.size())];
  }
  template <typename T>
  void shuffle(std::span<T> values) {
    for (size_t i = values.size(); i-- > 1;) std::swap(values[i], values[below(i + 1)]);
  }

 private:
  MersenneTwister words_;
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
