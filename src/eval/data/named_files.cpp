#include "eval/data/named_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "eval/data/path_pattern.h"

namespace danlu::eval {
namespace {

/// Below "/", which the tree begins with.
std::string found_path(const std::string& path, const std::vector<fs::path>& folders,
                       const std::string& place) {
  if (path.find("://") != path.npos) {
    throw DataError(tr("{}: {} is an address; data are not fetched from there", place, path),
                    tr("fetch it, and write the file's path here or name its folder with "
                       "--data_dir"));
  }
  std::vector<std::string> looked;
  for (const fs::path& folder : folders) {
    const fs::path whole = (fs::absolute(folder) / path).lexically_normal();
    if (std::ranges::find(looked, whole.string()) != looked.end()) continue;
    looked.push_back(whole.string());
    const fs::path below = whole.relative_path();
    if (!files_matching(whole.root_path(), below.string(), std::nullopt).empty())
      return below.string();
  }
  throw DataError(tr("{}: the file {} is missing", place, path),
                  tr("looked for: {}", fmt::format("{}", fmt::join(looked, ", "))));
}

}  // namespace

NamedFiles find_named_files(const Layout& layout, const std::vector<std::string>& splits,
                            const std::vector<fs::path>& folders, const std::string& origin) {
  NamedFiles named{layout, DataTree::from("/")};
  named.layout.files.clear();
  for (const std::string& split : splits) {
    const auto paths = layout.files.find(split);
    if (paths == layout.files.end() || paths->second.empty()) {
      std::vector<std::string> known;
      for (const auto& [name, of_it] : layout.files) known.push_back(name);
      throw DataError(tr("{}: data_files: no file is named for the split '{}'", origin, split),
                      tr("there are: {}", fmt::format("{}", fmt::join(known, ", "))));
    }
    const std::string place = fmt::format("{}: data_files: {}", origin, split);
    for (const std::string& path : paths->second)
      named.layout.files[split].push_back(found_path(path, folders, place));
  }
  return named;
}

}  // namespace danlu::eval
