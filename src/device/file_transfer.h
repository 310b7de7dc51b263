// device/file_transfer.h: whole blocks between memory and files that go past the system's cache.
// Internal to device.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>

namespace danlu::device::file_transfer {

/// What O_DIRECT asks of addresses, places and sizes is at most this.
constexpr int64_t kAlignment = 4096;
constexpr int64_t kBlockBytes = int64_t{4} << 20;

inline int64_t rounded_up(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// Throws the IoError of `what` in a directory.
[[noreturn]] void fail(const std::filesystem::path& directory, const char* what, int error);

/// The file of this descriptor once more, past the cache, and the old one closed; where the file
/// system has no such thing the old one.
int past_the_cache(int file, bool& is_direct);

/// Bytes [begin, end) of a file; false on an error, which is in errno, or where the file ends.
bool read_all(int file, int64_t begin, int64_t end, std::byte* to);
bool write_all(int file, int64_t begin, int64_t end, const std::byte* from);

}  // namespace danlu::device::file_transfer
