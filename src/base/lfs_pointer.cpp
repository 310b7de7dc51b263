#include "base/lfs_pointer.h"

#include <fmt/format.h>

#include <fstream>
#include <string>

#include "base/error.h"

namespace danlu {

namespace {

std::string directory_of(const std::filesystem::path& file) {
  const std::filesystem::path parent = file.parent_path();
  return parent.empty() ? "." : parent.string();
}

std::string what_is_wrong(const std::filesystem::path& file, std::string_view what) {
  return tr("{}: this is a Git LFS pointer, not {}: run `git lfs pull` in {}", file.string(), what,
            directory_of(file));
}

}  // namespace

bool is_lfs_pointer(const std::filesystem::path& file) {
  // Every version of the format begins so; the part after it is "v1" today.
  constexpr std::string_view kStart = "version https://git-lfs.github.com/spec/";
  // A pipe would wait for a writer.
  std::error_code unknown;
  if (!std::filesystem::is_regular_file(file, unknown)) return false;
  std::string start(kStart.size(), '\0');
  std::ifstream in(file, std::ios::binary);
  return in.read(start.data(), static_cast<std::streamsize>(start.size())) && start == kStart;
}

void refuse_lfs_pointer(const std::filesystem::path& file, std::string_view what) {
  if (!is_lfs_pointer(file)) return;
  throw ModelError(what_is_wrong(file, what),
                   tr("the git-lfs package gives git that command; or danlu download ORG/NAME "
                      "--local_dir {}",
                      directory_of(file)));
}

void refuse_lfs_pointer_as_data(const std::filesystem::path& file) {
  if (!is_lfs_pointer(file)) return;
  throw DataError(what_is_wrong(file, "the data"),
                  tr("the git-lfs package gives git that command; or danlu download ORG/NAME "
                     "--repo-type dataset --local_dir {}",
                     directory_of(file)));
}

}  // namespace danlu
