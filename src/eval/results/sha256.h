// eval/results/sha256.h: the hash by which the harness names rows, prompts and targets.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace danlu::eval {

/// SHA-256 (FIPS 180-4) of what was added, in pieces. A name, no protection: no other use.
class Sha256 {
 public:
  void add(std::string_view bytes);
  /// In hexadecimal; what was added stays.
  std::string hex() const;

 private:
  void mix(const char* block);
  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::string rest_;  ///< less than a block
  uint64_t size_bytes_ = 0;
};

std::string sha256_hex(std::string_view bytes);

}  // namespace danlu::eval
