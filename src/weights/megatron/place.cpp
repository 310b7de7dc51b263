#include "weights/megatron/place.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/file.h"

namespace danlu::weights::megatron {
namespace {

bool is_digits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

/// Longer numbers are no rank's; these fit every integer.
constexpr size_t kMostRankDigits = 9;

/// "mp_rank_00", "mp_rank_00_001", "mp_rank_00_001_002".
bool is_rank_folder(const std::string& name) {
  constexpr std::string_view kStart = "mp_rank_";
  if (!name.starts_with(kStart)) return false;
  int parts = 0;
  for (size_t begin = kStart.size(); begin <= name.size(); ++parts) {
    const size_t end = std::min(name.find('_', begin), name.size());
    const std::string_view number = std::string_view(name).substr(begin, end - begin);
    if (!is_digits(number) || number.size() > kMostRankDigits) return false;
    begin = end + 1;
  }
  return parts <= 3;
}

std::vector<std::string> rank_folders(const fs::path& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    if (entry.is_directory(error) && is_rank_folder(entry.path().filename()))
      names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// Iteration of a folder's name; nullopt: it is none, or release.
std::optional<int64_t> iteration_of(const std::string& folder) {
  constexpr std::string_view kStart = "iter_";
  if (!folder.starts_with(kStart) || !is_digits(std::string_view(folder).substr(kStart.size())))
    return std::nullopt;
  int64_t number = 0;
  const char* begin = folder.data() + kStart.size();
  const auto [stop, failure] = std::from_chars(begin, folder.data() + folder.size(), number);
  if (failure != std::errc()) return std::nullopt;
  return number;
}

bool is_iteration_folder(const std::string& name) {
  return name == "release" || iteration_of(name).has_value();
}

std::vector<std::string> iterations_in(const fs::path& root) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(root)) {
    const std::string name = entry.path().filename();
    if (entry.is_directory() && is_iteration_folder(name)) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string trimmed(std::string text) {
  const auto is_space = [](unsigned char c) { return c <= ' '; };
  while (!text.empty() && is_space(text.back())) text.pop_back();
  while (!text.empty() && is_space(text.front())) text.erase(text.begin());
  return text;
}

/// The folder for "1000" or "release". Errors: ModelError.
std::string folder_of(const std::string& which, const std::string& origin) {
  if (which == "release") return which;
  int64_t number = 0;
  const auto [stop, failure] = std::from_chars(which.data(), which.data() + which.size(), number);
  if (failure != std::errc() || stop != which.data() + which.size() || number < 0) {
    throw ModelError(tr("{}: must be an iteration or the word release, got \"{}\"", origin,
                        which.substr(0, 60)));
  }
  return iteration_directory(number);
}

Place open_iteration(const fs::path& root, const fs::path& directory) {
  Place place{root, directory, iteration_of(directory.filename()), rank_folders(directory)};
  if (place.ranks.empty()) {
    for (const char* name : {"metadata.json", ".metadata"}) {
      if (!fs::exists(directory / name)) continue;
      throw ModelError(tr("{}: a distributed checkpoint (torch_dist, zarr), which is not read",
                          directory.string()),
                       tr("save it once with --ckpt-format torch (Megatron-LM) and convert that"));
    }
    throw ModelError(tr("{}: no mp_rank_… folders in it", directory.string()),
                     tr("was the copy of the checkpoint complete?"));
  }
  return place;
}

}  // namespace

std::string iteration_directory(const std::optional<int64_t>& iteration) {
  return iteration ? fmt::format("iter_{:07}", *iteration) : "release";
}

bool is_megatron_directory(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return false;
  if (fs::exists(path / kTrackerFile, error) || !rank_folders(path).empty()) return true;
  for (const auto& entry : fs::directory_iterator(path, error)) {
    if (is_iteration_folder(entry.path().filename()) && !rank_folders(entry.path()).empty())
      return true;
  }
  return false;
}

Place find_checkpoint(const fs::path& path, const std::string& which) {
  const fs::path root = fs::absolute(path / "").parent_path();
  if (!rank_folders(root).empty()) {
    const bool is_iteration = is_iteration_folder(root.filename());
    return open_iteration(is_iteration ? root.parent_path() : root, root);
  }
  const std::vector<std::string> there = iterations_in(root);
  std::string folder;
  if (!which.empty()) {
    folder = folder_of(which, "[iteration]");
  } else if (fs::exists(root / kTrackerFile)) {
    folder = folder_of(trimmed(read_file(root / kTrackerFile)), (root / kTrackerFile).string());
  } else if (there.size() == 1) {
    folder = there.front();
  } else {
    throw ModelError(tr("{}: {} is missing, and {} iterations are here: {}", root.string(),
                        kTrackerFile, there.size(), fmt::join(there, ", ")),
                     tr("choose one with --iteration"));
  }
  if (!fs::is_directory(root / folder)) {
    throw ModelError(tr("{}: {} is not here; there are: {}", root.string(), folder,
                        there.empty() ? "none" : fmt::format("{}", fmt::join(there, ", "))),
                     tr("choose another with --iteration"));
  }
  return open_iteration(root, root / folder);
}

}  // namespace danlu::weights::megatron
