// eval/data/archive.h: the data files of a .zip or .tar archive, taken out with care.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace danlu::eval {

/// .zip .tar .tar.gz .tgz .tar.xz .txz .tar.bz2 .tbz2 .tar.zst, by name, in any case.
bool is_archive(const std::filesystem::path& path);

/// Whether a benchmark may read such a file: rows (data/readers/data_files.h), or tiktoken's ranks.
bool is_benchmark_file(const std::filesystem::path& path);

/// What an archive may unpack to. Text shrinks to a twentieth at best, bombs to a thousandth.
struct ArchiveLimits {
  uint64_t always_bytes = uint64_t{256} << 20;  ///< together; allowed however small the archive is
  uint64_t times_archive = 100;                 ///< else this multiple of its size
  uint64_t most_bytes = uint64_t{64} << 30;
  int64_t num_files = 200'000;
};

/// Names of the data files in an archive, as unpack_archive would give them.
/// Errors: as unpack_archive, as far as names tell.
std::vector<std::string> archive_names(const std::filesystem::path& archive,
                                       const ArchiveLimits& limits = {});

/// Writes the data files of `archive` below `directory`, which is empty. Links, devices and files
/// of other types stay out, as do the hidden ones that macOS adds. Nothing is written elsewhere.
/// Errors: DataError naming the archive (no archive, damaged, cut off, encrypted, beyond the
/// limits, a name with ".."); IoError (unreadable, disk full).
void unpack_archive(const std::filesystem::path& archive, const std::filesystem::path& directory,
                    const ArchiveLimits& limits = {});

}  // namespace danlu::eval
