// weights/compare/tensor_digest.h: what a tensor, and what a whole checkpoint holds, as one number
// each.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weights/tensor_source.h"

namespace danlu::weights {

/// XXH3-64 (seed 0) of a tensor's bytes as TensorSource::read gives them: row-major, little-endian.
struct TensorDigest {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape = {};
  uint64_t digest = 0;
};

/// The digest of bytes that come in pieces. Movable; not thread-safe.
class DigestStream {
 public:
  DigestStream();
  ~DigestStream();
  DigestStream(DigestStream&&) noexcept;
  DigestStream& operator=(DigestStream&&) noexcept;
  void add(std::span<const std::byte> bytes);
  uint64_t digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// One number for a checkpoint, whatever its format and the order of its tensors: XXH3-64 over the
/// tensors sorted by name, each as "name\0dtype\0[rows, columns]\0" and its digest in 8 bytes,
/// little-endian.
uint64_t digest_total(std::vector<TensorDigest> digests);

/// 16 hexadecimal digits, as `xxhsum -H3` prints them.
std::string digest_text(uint64_t digest);

}  // namespace danlu::weights
