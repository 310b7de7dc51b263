// Plain files in a directory, with Hugging Face's records of them.
#include <fmt/format.h>
#include <sys/stat.h>

#include <fstream>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/lfs_pointer.h"
#include "hub/fetch_file.h"
#include "hub/places.h"

namespace danlu::hub {
namespace {

double modified_s(const fs::path& file) {
  struct stat status{};
  if (::stat(file.c_str(), &status) != 0) return 0;
  return static_cast<double>(status.st_mtim.tv_sec) +
         1e-9 * static_cast<double>(status.st_mtim.tv_nsec);
}

/// What Hugging Face's tool writes beside what it fetched: three lines.
struct Record {
  std::string commit, etag;
  double timestamp_s = 0;
};

std::optional<Record> record_in(const fs::path& file) {
  Record record;
  std::ifstream in(file);
  if (!(in >> record.commit >> record.etag >> record.timestamp_s)) return std::nullopt;
  return record;
}

class DirectoryPlaces final : public Places {
 public:
  DirectoryPlaces(fs::path directory, fs::path parts, const Repository& repository,
                  std::string commit, std::map<std::string, std::string> names)
      : directory_(std::move(directory)),
        parts_(std::move(parts)),
        commit_(std::move(commit)),
        names_(std::move(names)),
        records_(repository.hub == Hub::kHuggingFace && names_.empty()) {}

  fs::path directory() const override { return directory_; }
  fs::path part_of(const RemoteFile& file) const override {
    // The name may be as long as a file system allows: its hash is not.
    return parts_ / fmt::format("{:016x}.{}.incomplete", hash_bytes(file.path), file.etag());
  }
  fs::path lock_of(const RemoteFile& file) const override {
    return parts_ / fmt::format("{:016x}.lock", hash_bytes(file.path));
  }

  bool has(const RemoteFile& file) const override {
    const fs::path name = place_of(file);
    std::error_code error;
    if (!fs::exists(name, error)) return false;
    const auto record = record_of(file);
    if (record && !file.etag().empty() && record->etag == file.etag() &&
        is_as_recorded(name, *record))
      return !file.size || fs::file_size(name, error) == *file.size;
    return has_content(name, file);
  }

  bool is_changed_by_hand(const RemoteFile& file) const override {
    const fs::path name = place_of(file);
    std::error_code error;
    if (!fs::exists(name, error) || is_lfs_pointer(name)) return false;
    const auto record = record_of(file);
    return !record || !is_as_recorded(name, *record);
  }

  void keep(const RemoteFile&) const override {}

  void publish(const std::vector<RemoteFile>& files) const override {
    // Between here and the end the directory is of two revisions: it must not look like a model.
    for (const RemoteFile& file : files) {
      if (decides(file.path) && waits(file)) fs::remove(place_of(file));
    }
    for (const bool last : {false, true}) {
      for (const RemoteFile& file : files) {
        if (decides(file.path) == last) give_name(file);
      }
      sync_path(directory_);
    }
    if (records_) return;
    std::error_code ignored;
    fs::remove(parts_, ignored);  // unless parts of other files wait there
  }

 private:
  fs::path place_of(const RemoteFile& file) const {
    const auto name = names_.find(file.path);
    return directory_ / (name == names_.end() ? file.path : name->second);
  }

  bool waits(const RemoteFile& file) const {
    std::error_code error;
    return fs::exists(part_of(file), error);
  }

  fs::path record_file(const RemoteFile& file) const {
    return directory_ / ".cache" / "huggingface" / "download" / (file.path + ".metadata");
  }

  std::optional<Record> record_of(const RemoteFile& file) const {
    return records_ ? record_in(record_file(file)) : std::nullopt;
  }

  /// Times of files are rounded by some file systems.
  static bool is_as_recorded(const fs::path& name, const Record& record) {
    return modified_s(name) <= record.timestamp_s + 1;
  }

  void give_name(const RemoteFile& file) const {
    const fs::path name = place_of(file);
    fs::create_directories(name.parent_path());
    if (waits(file)) fs::rename(part_of(file), name);
    if (!records_ || file.etag().empty()) return;
    const fs::path record = record_file(file);
    fs::create_directories(record.parent_path());
    write_file_atomic(record, fmt::format("{}\n{}\n{:.6f}\n", commit_, file.etag(), unix_now_s()));
  }

  fs::path directory_, parts_;
  std::string commit_;
  std::map<std::string, std::string> names_;
  bool records_;
};

}  // namespace

bool decides(const std::string& path) {
  const std::string name = fs::path(path).filename().string();
  return name == "config.json" || name == "adapter_config.json" || name == "configuration.json" ||
         name == "model_index.json" || name.ends_with(".index.json");
}

std::unique_ptr<Places> plain_directory(const fs::path& directory, const fs::path& parts,
                                        const Repository& repository, const std::string& commit,
                                        const std::map<std::string, std::string>& names) {
  return std::make_unique<DirectoryPlaces>(directory, parts, repository, commit, names);
}

}  // namespace danlu::hub
