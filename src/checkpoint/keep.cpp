#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/temporary.h"
#include "checkpoint/checkpoint.h"

namespace danlu::checkpoint {

void rotate(const fs::path& run_dir, int64_t limit, const std::vector<fs::path>& keep) {
  if (limit <= 0) return;
  std::vector<Found> found = list(run_dir);
  int64_t count = static_cast<int64_t>(found.size());
  for (const Found& checkpoint : found) {
    if (count <= limit) return;
    const bool kept = std::any_of(keep.begin(), keep.end(), [&](const fs::path& path) {
      std::error_code ignored;
      return fs::equivalent(path, checkpoint.directory, ignored);
    });
    if (kept) continue;
    remove_directory_atomic(checkpoint.directory);
    --count;
  }
}

void point_link(const fs::path& run_dir, const std::string& name, const fs::path& directory) {
  const Temporary folder(run_dir / name, Temporary::Kind::kDirectory);
  std::error_code error(folder.fd() < 0 ? errno : 0, std::generic_category());
  const fs::path temporary = folder.path() / name;
  if (!error) fs::create_directory_symlink(directory.filename(), temporary, error);
  if (!error) fs::rename(temporary, run_dir / name, error);
  if (error) throw IoError(tr("{}: cannot link: {}", (run_dir / name).string(), error.message()));
}

}  // namespace danlu::checkpoint
