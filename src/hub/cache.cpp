#include "hub/cache.h"

#include <algorithm>
#include <cctype>
#include <fstream>

#include "base/file.h"

namespace danlu::hub {
namespace {

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

bool holds_something(const fs::path& directory) {
  std::error_code error;
  return fs::is_directory(directory, error) && !fs::is_empty(directory, error);
}

std::string first_word_of(const fs::path& file) {
  std::string word;
  std::ifstream(file) >> word;
  return word;
}

std::optional<fs::path> newest_in(const fs::path& snapshots) {
  std::optional<fs::path> newest;
  fs::file_time_type newest_time;
  std::error_code error;
  for (fs::directory_iterator at(snapshots, error), end; !error && at != end; at.increment(error)) {
    std::error_code unknown;
    const auto time = fs::last_write_time(at->path(), unknown);
    if (unknown || !holds_something(at->path()) || (newest && time <= newest_time)) continue;
    newest = at->path();
    newest_time = time;
  }
  return newest;
}

std::optional<fs::path> snapshot_of(const fs::path& folder, const Repository& repository) {
  const std::string revision = repository.revision_or_default();
  const std::string commit = first_word_of(folder / "refs" / revision);
  for (const std::string& name : {commit, revision}) {
    if (!name.empty() && holds_something(folder / "snapshots" / name))
      return folder / "snapshots" / name;
  }
  if (!repository.revision.empty()) return std::nullopt;
  return newest_in(folder / "snapshots");
}

}  // namespace

fs::path repository_folder(const fs::path& cache, const Repository& repository) {
  const std::string name = replaced(repository.id, "/", "--");
  if (repository.hub == Hub::kModelScope) return cache / repository.kinds() / name;
  return cache / (std::string(repository.kinds()) + "--" + name);
}

std::optional<fs::path> find_in_cache(const fs::path& cache, const Repository& repository,
                                      std::vector<std::string>& looked) {
  const fs::path folder = repository_folder(cache, repository);
  looked.push_back(folder.string());
  if (const auto snapshot = snapshot_of(folder, repository)) return snapshot;
  if (repository.hub == Hub::kHuggingFace) return std::nullopt;
  // Before version 2 its tool kept one revision of each, and did not record which.
  if (!repository.revision.empty() && repository.revision != "master") return std::nullopt;
  std::vector<std::string> ids = {replaced(repository.id, ".", "___")};
  if (ids.front() != repository.id) ids.push_back(repository.id);
  const std::string kinds = repository.kinds();
  for (const fs::path& root : {cache / "hub" / kinds, cache / kinds, cache / "hub", cache}) {
    for (const std::string& id : ids) {
      looked.push_back((root / id).string());
      if (holds_something(root / id)) return root / id;
    }
  }
  return std::nullopt;
}

}  // namespace danlu::hub
