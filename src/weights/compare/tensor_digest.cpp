#include "weights/compare/tensor_digest.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/descriptor.h"
#include "base/error.h"
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

uint64_t digest_of_file(const std::filesystem::path& path) {
  DigestStream digest;
  std::vector<std::byte> piece(1 << 20);
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  ssize_t got = fd;
  while (fd >= 0 && (got = read_full(fd, piece.data(), piece.size())) > 0)
    digest.add(std::span(piece).first(static_cast<size_t>(got)));
  const int code = errno;
  if (fd >= 0) ::close(fd);
  if (got < 0) throw IoError(fmt::format("{}: cannot read: {}", path.string(), ::strerror(code)));
  return digest.digest();
}

std::string digest_text(uint64_t digest) { return fmt::format("{:016x}", digest); }

}  // namespace danlu::weights
