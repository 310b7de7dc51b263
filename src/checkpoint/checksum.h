// checkpoint/checksum.h: whether a file still holds what was written.
#pragma once
#include <filesystem>
#include <string>

namespace danlu::checkpoint {

/// XXH3-64 of a file's bytes in 16 hexadecimal digits, as `xxhsum -H3` prints it. For a file above
/// 64 MiB it is that of the digests of its pieces of 64 MiB (8 bytes each, little-endian), which
/// the engine's threads read at once: faster than any disk wrote them. Errors: IoError naming the
/// file.
std::string checksum_of(const std::filesystem::path& file);

}  // namespace danlu::checkpoint
