// base/file_hash.h: what a file holds as one number.
#pragma once
#include <cstdint>
#include <filesystem>

namespace danlu {

/// Hash of the bytes of a file as they lie on disk, at the speed of reading: content keys for
/// caches, not security. Read in pieces: a mapped file would count as memory in use.
/// Errors: IoError naming the file, also for one that can be read only in part.
uint64_t hash_file(const std::filesystem::path& path);

}  // namespace danlu
