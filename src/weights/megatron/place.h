// weights/megatron/place.h: finding a Megatron checkpoint's files on disk.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace danlu::weights::megatron {

/// One saved iteration.
struct Place {
  std::filesystem::path root;        ///< what --save named; holds the tracker file
  std::filesystem::path directory;   ///< iter_0001000 or release: holds the ranks' folders
  std::optional<int64_t> iteration;  ///< empty: release
  std::vector<std::string> ranks;    ///< folder names, sorted: "mp_rank_00_001", …
};

/// Whether `path` is a --save directory, one of its iterations, or neither; never throws.
bool is_megatron_directory(const std::filesystem::path& path);

/// The iteration that the tracker file names, or `which` ("1000", "release"), or the one `path`
/// itself is. Errors: ModelError naming what is missing: tracker, iteration (those that are there
/// are listed), ranks.
Place find_checkpoint(const std::filesystem::path& path, const std::string& which = "");

inline constexpr const char* kTrackerFile = "latest_checkpointed_iteration.txt";

/// "iter_0001000", or "release".
std::string iteration_directory(const std::optional<int64_t>& iteration);

}  // namespace danlu::weights::megatron
