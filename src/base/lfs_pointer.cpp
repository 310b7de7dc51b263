#include "base/lfs_pointer.h"

#include <fmt/format.h>

#include <fstream>
#include <string>

#include "base/error.h"

namespace danlu {

void refuse_lfs_pointer(const std::filesystem::path& file, std::string_view what) {
  // Every version of the format begins so; the part after it is "v1" today.
  constexpr std::string_view kStart = "version https://git-lfs.github.com/spec/";
  // A pipe would wait for a writer.
  if (!std::filesystem::is_regular_file(file)) return;
  std::string start(kStart.size(), '\0');
  std::ifstream in(file, std::ios::binary);
  if (!in.read(start.data(), static_cast<std::streamsize>(start.size())) || start != kStart) return;
  const std::filesystem::path parent = file.parent_path();
  const std::string directory = parent.empty() ? "." : parent.string();
  throw ModelError(tr("{}: this is a Git LFS pointer, not {}: run `git lfs pull` in {}",
                      file.string(), what, directory),
                   tr("the git-lfs package gives git that command; or danlu download ORG/NAME "
                      "--local_dir {}",
                      directory));
}

}  // namespace danlu
