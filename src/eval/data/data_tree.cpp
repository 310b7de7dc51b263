#include "eval/data/data_tree.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/nearest_name.h"
#include "base/temporary.h"
#include "data/readers/byte_stream.h"
#include "data/readers/text_encoding.h"
#include "eval/data/archive.h"
#include "eval/data/path_pattern.h"
#include "eval/data/read_rows.h"

namespace danlu::eval {
namespace {
namespace {

constexpr int kLevelsAbove = 3, kLevelsBelow = 3;
constexpr size_t kMaxDirectories = 2000;  ///< somebody's whole home is no benchmark
constexpr const char* kUnpackedName = "danlu-eval";

/// `directory` and those below it, nearer ones first, each level sorted.
void add_directories(const fs::path& directory, int rank, std::vector<DataTree::Root>* roots) {
  std::deque<std::pair<fs::path, int>> queue = {{directory, 0}};
  for (size_t count = 0; !queue.empty() && count < kMaxDirectories; ++count) {
    const auto [path, level] = queue.front();
    queue.pop_front();
    roots->push_back({path, level == 0 ? rank : rank + kLevelsAbove + level});
    if (level == kLevelsBelow) continue;
    std::vector<fs::path> inner;
    std::error_code error;
    for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
      std::error_code unknown;
      const bool is_hidden = at->path().filename().native().starts_with('.');
      if (!is_hidden && at->is_directory(unknown)) inner.push_back(at->path());
    }
    std::sort(inner.begin(), inner.end());
    for (fs::path& one : inner) queue.emplace_back(std::move(one), level + 1);
  }
}

bool lies_in(const fs::path& path, const fs::path& directory) {
  return std::mismatch(directory.begin(), directory.end(), path.begin(), path.end()).first ==
         directory.end();
}

template <typename Visit>
void for_each_pattern(const Layout& layout, const std::string& split, const Visit& visit) {
  for (const auto& [name, patterns] : layout.files) {
    if (!split.empty() && name != split) continue;
    for (const std::string& pattern : patterns) visit(pattern);
  }
}

/// A directory for what is unpacked, which only this user may look into.
Temporary unpacking_directory() {
  Temporary directory(fs::temp_directory_path() / kUnpackedName, Temporary::Kind::kDirectory);
  if (directory.fd() < 0) {
    throw IoError(tr("{}: cannot make a directory: {}", fs::temp_directory_path().string(),
                     std::strerror(errno)),
                  tr("TMPDIR names another place for what is unpacked"));
  }
  std::error_code ignored;
  fs::permissions(directory.path(), fs::perms::owner_all, ignored);
  return directory;
}

}  // namespace
}  // namespace

struct DataTree::State {
  struct Archive {
    fs::path path;
    std::optional<std::vector<std::string>> names;
    bool is_open = false;
  };
  fs::path given;
  std::vector<Root> roots;
  std::vector<Archive> archives;  ///< below `given`
  std::vector<Temporary> unpacked;
  std::optional<DataError> broken;

  std::vector<std::string> names_in(const fs::path& archive) {
    try {
      return archive_names(archive);
    } catch (const DataError& error) {
      if (!broken) broken = error;
      return {};
    }
  }

  void unpack(const fs::path& archive) {
    Temporary directory = unpacking_directory();
    unpack_archive(archive, directory.path());
    add_directories(directory.path(), 0, &roots);
    unpacked.push_back(std::move(directory));
  }

  void find_archives() {
    for (const Root& root : roots) {
      if (root.is_above) continue;
      std::vector<fs::path> found;
      std::error_code error;
      for (fs::directory_iterator at(root.path, error), end; !error && at != end;
           at.increment(error)) {
        std::error_code unknown;
        if (is_archive(at->path()) && at->is_regular_file(unknown)) found.push_back(at->path());
      }
      std::sort(found.begin(), found.end());
      for (fs::path& path : found) archives.push_back({std::move(path), {}, false});
    }
  }
};

DataTree DataTree::open(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (path.empty() || !fs::exists(status)) {
    throw DataError(tr("{}: there is no such file or directory", path.string()),
                    did_you_mean_path(path));
  }
  DataTree tree;
  tree.state_ = std::make_shared<State>();
  State& state = *tree.state_;
  state.given = fs::absolute(path).lexically_normal();
  if (!state.given.has_filename()) state.given = state.given.parent_path();
  if (!fs::is_directory(status) && is_archive(path)) {
    state.unpack(path);
    return tree;
  }
  if (!fs::is_directory(status) && !is_benchmark_file(path)) {
    throw DataError(
        tr("{}: neither a directory nor an archive nor a file of rows", path.string()),
        tr("archives: .zip, .tar, .tar.gz, .tgz, .tar.xz, .tar.bz2, .tar.zst; rows: .parquet, "
           ".json, .jsonl, .csv, .tsv"));
  }
  if (fs::is_directory(status)) {
    add_directories(state.given, 0, &state.roots);
    state.find_archives();
  }
  fs::path above = state.given;
  for (int level = 1; level <= kLevelsAbove && above.has_relative_path(); ++level) {
    above = above.parent_path();
    state.roots.push_back({above, level, true});
  }
  std::stable_sort(state.roots.begin(), state.roots.end(),
                   [](const Root& a, const Root& b) { return a.rank < b.rank; });
  return tree;
}

DataTree DataTree::from(const fs::path& directory) {
  DataTree tree;
  tree.state_ = std::make_shared<State>();
  tree.state_->given = directory;
  tree.only_ = {{directory, 0, false}};
  return tree;
}

const fs::path& DataTree::path() const { return state_->given; }

const std::vector<DataTree::Root>& DataTree::roots() const {
  return only_.empty() ? state_->roots : only_;
}

DataTree DataTree::at(const Root& root) const {
  DataTree tree = *this;
  // It was found to lead back to where we look.
  tree.only_ = {{root.path, root.rank, false}};
  return tree;
}

bool DataTree::serves(const Root& root, const Layout& layout) const {
  bool serves = false;
  for_each_pattern(layout, "", [&](const std::string& pattern) {
    if (serves) return;
    for (const fs::path& file : files_matching(root.path, pattern, std::nullopt))
      serves |= !root.is_above || lies_in(file, state_->given);
  });
  return serves;
}

bool DataTree::open_archives(const Layout& layout) const {
  if (!only_.empty()) return false;
  bool has_new = false;
  for (State::Archive& archive : state_->archives) {
    if (archive.is_open) continue;
    if (!archive.names) archive.names = state_->names_in(archive.path);
    bool is_ours = false;
    for_each_pattern(layout, "", [&](const std::string& pattern) {
      for (const std::string& name : *archive.names) is_ours |= ends_in_pattern(name, pattern);
    });
    if (!is_ours) continue;
    log::notice("{} is unpacked for this run: what it holds is not beside it",
                archive.path.string());
    state_->unpack(archive.path);
    archive.is_open = has_new = true;
  }
  return has_new;
}

void DataTree::refuse_broken_archives() const {
  if (state_->broken) throw DataError(*state_->broken);
}

std::vector<fs::path> DataTree::files(const Layout& layout, const std::string& split,
                                      const std::string& subject) const {
  const auto look = [&]() -> std::vector<fs::path> {
    for (const Root& root : roots()) {
      if (root.is_above && !serves(root, layout)) continue;
      std::vector<fs::path> found;
      for_each_pattern(layout, split, [&](const std::string& pattern) {
        if (!found.empty() && !layout.are_named) return;
        for (fs::path& file : files_matching(root.path, pattern, subject))
          found.push_back(std::move(file));
      });
      if (!found.empty()) return found;
    }
    return {};
  };
  std::vector<fs::path> found = look();
  if (found.empty() && only_.empty()) {
    const bool is_elsewhere = std::any_of(roots().begin(), roots().end(),
                                          [&](const Root& root) { return serves(root, layout); });
    if (!is_elsewhere && open_archives(layout)) found = look();
  }
  require_whole_set(found);
  return found;
}

bool DataTree::has(const Layout& layout, const std::string& split,
                   const std::string& subject) const {
  return !files(layout, split, subject).empty();
}

std::vector<Json> DataTree::rows(const Layout& layout, const std::string& split,
                                 const std::string& subject) const {
  const std::vector<fs::path> found = files(layout, split, subject);
  if (found.empty()) {
    refuse_broken_archives();
    std::string wanted;
    for_each_pattern(layout, split, [&](const std::string& pattern) {
      wanted += (wanted.empty() ? "" : ", ") + with_subject(pattern, subject);
    });
    throw DataError(tr("{}: no rows of the split '{}' ({}); looked for: {}", path().string(), split,
                       layout.name, wanted.empty() ? "-" : wanted));
  }
  std::vector<Json> rows;
  for (const fs::path& file : found) read_rows(file, layout, &rows);
  return rows;
}

std::string DataTree::place_of_row(const Layout& layout, const std::string& split,
                                   const std::string& subject, size_t index) const {
  for (const fs::path& file : files(layout, split, subject)) {
    std::vector<Json> rows;
    read_rows(file, layout, &rows);
    if (index < rows.size()) return row_place_in(file, layout, index);
    index -= rows.size();
  }
  throw InternalError("[eval] a row that is in none of its files");
}

std::string DataTree::text(const std::string& relative_path) const {
  require_inside(relative_path);
  for (const Root& root : roots()) {
    const fs::path path = root.path / relative_path;
    std::error_code error;
    if (root.is_above && !lies_in(path, state_->given)) continue;
    if (!fs::is_regular_file(path, error)) continue;
    std::string text = read_file(path);
    if (text.starts_with(data::kUtf8Mark)) text.erase(0, data::kUtf8Mark.size());
    if (data::find_invalid_utf8(text) != text.npos) data::require_utf8_file(path);
    return text;
  }
  throw DataError(tr("{}: the file {} is missing", path().string(), relative_path));
}

}  // namespace danlu::eval
