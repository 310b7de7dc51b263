#include "weights/compare/tensor_digest.h"

#include <fmt/format.h>

#include <algorithm>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "weights/source_base.h"

namespace danlu::weights {

struct DigestStream::State {
  XXH3_state_t xxh3;
};

DigestStream::DigestStream() : state_(std::make_unique<State>()) {
  XXH3_64bits_reset(&state_->xxh3);
}
DigestStream::~DigestStream() = default;
DigestStream::DigestStream(DigestStream&&) noexcept = default;
DigestStream& DigestStream::operator=(DigestStream&&) noexcept = default;

void DigestStream::add(std::span<const std::byte> bytes) {
  XXH3_64bits_update(&state_->xxh3, bytes.data(), bytes.size());
}

uint64_t DigestStream::digest() const { return XXH3_64bits_digest(&state_->xxh3); }

uint64_t digest_total(std::vector<TensorDigest> digests) {
  std::sort(digests.begin(), digests.end(),
            [](const TensorDigest& a, const TensorDigest& b) { return a.name < b.name; });
  DigestStream total;
  for (const TensorDigest& tensor : digests) {
    std::string text = tensor.name + '\0' + std::string(dtype_name(tensor.dtype)) + '\0' +
                       shape_text(tensor.shape) + '\0';
    for (int i = 0; i < 8; ++i) text.push_back(static_cast<char>(tensor.digest >> (8 * i)));
    total.add(std::as_bytes(std::span(text)));
  }
  return total.digest();
}

std::string digest_text(uint64_t digest) { return fmt::format("{:016x}", digest); }

}  // namespace danlu::weights
