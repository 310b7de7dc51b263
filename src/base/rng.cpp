#include "base/rng.h"

namespace danlu {

NumpyRandomState::NumpyRandomState(uint32_t seed) {
  state_[0] = seed;
  for (uint32_t i = 1; i < 624; ++i) {
    state_[i] = 1812433253u * (state_[i - 1] ^ (state_[i - 1] >> 30)) + i;
  }
}

void NumpyRandomState::refill() {
  for (int i = 0; i < 624; ++i) {
    const uint32_t y = (state_[i] & 0x80000000u) | (state_[(i + 1) % 624] & 0x7fffffffu);
    state_[i] = state_[(i + 397) % 624] ^ (y >> 1) ^ ((y & 1u) ? 0x9908b0dfu : 0u);
  }
  position_ = 0;
}

uint32_t NumpyRandomState::next_u32() {
  if (position_ == 624) refill();
  uint32_t y = state_[position_++];
  y ^= y >> 11;
  y ^= (y << 7) & 0x9d2c5680u;
  y ^= (y << 15) & 0xefc60000u;
  return y ^ (y >> 18);
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

double NumpyRandomState::next_double() {
  const uint32_t a = next_u32() >> 5, b = next_u32() >> 6;
  return (a * 67108864.0 + b) / 9007199254740992.0;
}

}  // namespace danlu
