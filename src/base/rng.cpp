#include "base/rng.h"

#include <algorithm>
#include <bit>
#include <unordered_set>

namespace danlu {
namespace {

constexpr uint32_t kArraySeed = 19650218u;

/// CPython takes the seed's 32-bit words, the least first; zero has one word.
MersenneTwister twister_of_python_seed(int64_t seed) {
  const uint64_t size = seed < 0 ? -static_cast<uint64_t>(seed) : static_cast<uint64_t>(seed);
  const uint32_t key[2] = {static_cast<uint32_t>(size), static_cast<uint32_t>(size >> 32)};
  return MersenneTwister(std::span<const uint32_t>(key, key[1] != 0 ? 2 : 1));
}

}  // namespace

MersenneTwister::MersenneTwister(uint32_t seed) {
  state_[0] = seed;
  for (uint32_t i = 1; i < 624; ++i) {
    state_[i] = 1812433253u * (state_[i - 1] ^ (state_[i - 1] >> 30)) + i;
  }
}

MersenneTwister::MersenneTwister(std::span<const uint32_t> key) : MersenneTwister(kArraySeed) {
  size_t i = 1, j = 0;
  const auto mixed = [&](uint32_t factor) {
    return state_[i] ^ ((state_[i - 1] ^ (state_[i - 1] >> 30)) * factor);
  };
  const auto next_place = [&] {
    if (++i < state_.size()) return;
    state_[0] = state_.back();
    i = 1;
  };
  for (size_t k = std::max(state_.size(), key.size()); k > 0; --k) {
    state_[i] = mixed(1664525u) + key[j] + static_cast<uint32_t>(j);
    next_place();
    if (++j == key.size()) j = 0;
  }
  for (size_t k = state_.size() - 1; k > 0; --k) {
    state_[i] = mixed(1566083941u) - static_cast<uint32_t>(i);
    next_place();
  }
  state_[0] = 0x80000000u;
}

void MersenneTwister::refill() {
  for (int i = 0; i < 624; ++i) {
    const uint32_t y = (state_[i] & 0x80000000u) | (state_[(i + 1) % 624] & 0x7fffffffu);
    state_[i] = state_[(i + 397) % 624] ^ (y >> 1) ^ ((y & 1u) ? 0x9908b0dfu : 0u);
  }
  position_ = 0;
}

uint32_t MersenneTwister::next_u32() {
  if (position_ == 624) refill();
  uint32_t y = state_[position_++];
  y ^= y >> 11;
  y ^= (y << 7) & 0x9d2c5680u;
  y ^= (y << 15) & 0xefc60000u;
  return y ^ (y >> 18);
}

double MersenneTwister::next_double() {
  const uint32_t a = next_u32() >> 5, b = next_u32() >> 6;
  return (a * 67108864.0 + b) / 9007199254740992.0;
}

uint64_t NumpyRandomState::bounded(uint64_t max) {
  if (max == 0) return 0;
  uint64_t mask = max;
  for (int shift = 1; shift < 64; shift <<= 1) mask |= mask >> shift;
  for (;;) {
    uint64_t value = next_u32();
    if (max > 0xffffffffull) value = (value << 32) | next_u32();
    value &= mask;
    if (value <= max) return value;
  }
}

PythonRandom::PythonRandom(int64_t seed) : words_(twister_of_python_seed(seed)) {}

uint64_t PythonRandom::getrandbits(int count) {
  if (count == 0) return 0;
  if (count <= 32) return words_.next_u32() >> (32 - count);
  const uint64_t low = words_.next_u32();
  return low | static_cast<uint64_t>(words_.next_u32() >> (64 - count)) << 32;
}

uint64_t PythonRandom::below(uint64_t bound) {
  const int count = std::bit_width(bound);
  uint64_t value = getrandbits(count);
  while (value >= bound) value = getrandbits(count);
  return value;
}

std::vector<size_t> PythonRandom::sample(size_t size, size_t count) {
  std::vector<size_t> drawn(count);
  // CPython draws from a copy of the population where that is smaller than a set of what is drawn:
  // of 21 elements, or 4 to the power of ceil(log4(3 count)) more.
  size_t set_size = 21;
  if (count > 5) {
    size_t power = 1;
    while (power < 3 * count) power *= 4;
    set_size += power;
  }
  if (size <= set_size) {
    std::vector<size_t> pool(size);
    for (size_t i = 0; i < size; ++i) pool[i] = i;
    for (size_t i = 0; i < count; ++i) {
      const size_t at = below(size - i);
      drawn[i] = pool[at];
      pool[at] = pool[size - i - 1];
    }
    return drawn;
  }
  std::unordered_set<size_t> seen;
  for (size_t& place : drawn) {
    do {
      place = below(size);
    } while (!seen.insert(place).second);
  }
  return drawn;
}

}  // namespace danlu
