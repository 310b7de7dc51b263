// The layout of Hugging Face's cache.
#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "hub/cache.h"
#include "hub/fetch_file.h"
#include "hub/places.h"

namespace danlu::hub {
namespace {

bool is_commit(const std::string& revision) {
  return revision.size() == 40 &&
         revision.find_first_not_of("0123456789abcdef") == std::string::npos;
}

class CachePlaces final : public Places {
 public:
  CachePlaces(const fs::path& cache, const Repository& repository, std::string commit, bool links)
      : folder_(repository_folder(cache, repository)),
        locks_(cache / ".locks" / folder_.filename()),
        revision_(repository.revision_or_default()),
        commit_(std::move(commit)),
        links_(links) {}

  fs::path directory() const override { return folder_ / "snapshots" / commit_; }
  fs::path part_of(const RemoteFile& file) const override {
    return blob_of(file).string() + ".incomplete";
  }
  fs::path lock_of(const RemoteFile& file) const override {
    return locks_ / (file.etag() + ".lock");
  }
  bool has(const RemoteFile& file) const override {
    std::error_code error;
    const uint64_t size = fs::file_size(blob_of(file), error);
    if (!error && (!file.size || size == *file.size)) return true;
    // Where links were switched off the file lies in the snapshot itself.
    const fs::path own = directory() / file.path;
    return fs::is_regular_file(fs::symlink_status(own, error)) && has_content(own, file);
  }
  bool is_changed_by_hand(const RemoteFile&) const override { return false; }
  void keep(const RemoteFile& file) const override {
    fs::rename(part_of(file), blob_of(file));
    sync_path(folder_ / "blobs");
  }
  void publish(const std::vector<RemoteFile>& files) const override {
    for (const bool last : {false, true}) {
      for (const RemoteFile& file : files) {
        if (decides(file.path) == last) give_name(file);
      }
    }
    sync_path(directory());
    if (is_commit(revision_)) return;
    const fs::path ref = folder_ / "refs" / revision_;
    fs::create_directories(ref.parent_path());
    write_file_atomic(ref, commit_);
  }

 private:
  fs::path blob_of(const RemoteFile& file) const { return folder_ / "blobs" / file.etag(); }

  void give_name(const RemoteFile& file) const {
    const fs::path name = directory() / file.path;
    fs::create_directories(name.parent_path());
    fs::path target = "..";
    for (const char byte : file.path) {
      if (byte == '/') target /= "..";
    }
    target = target / ".." / "blobs" / file.etag();
    std::error_code error;
    if (fs::is_symlink(name, error) && fs::read_symlink(name) == target) return;
    if (!fs::exists(blob_of(file), error)) return;  // it lies there itself
    // Each of these makes the name in one step: a kill leaves nothing beside it.
    fs::remove(name);
    if (links_) {
      fs::create_symlink(target, name, error);
    } else {
      fs::create_hard_link(blob_of(file), name, error);
      if (error) copy_to(name, file);
    }
    if (!fs::exists(name))
      throw IoError(tr("{}: cannot be written: {}", name.string(), error.message()),
                    tr("where links are not possible: HF_HUB_DISABLE_SYMLINKS=1, or --local_dir"));
  }

  void copy_to(const fs::path& name, const RemoteFile& file) const {
    fs::copy_file(blob_of(file), part_of(file), fs::copy_options::overwrite_existing);
    fs::rename(part_of(file), name);
  }

  fs::path folder_, locks_;
  std::string revision_, commit_;
  bool links_;
};

}  // namespace

std::unique_ptr<Places> huggingface_cache(const fs::path& cache, const Repository& repository,
                                          const std::string& commit, bool links) {
  return std::make_unique<CachePlaces>(cache, repository, commit, links);
}

}  // namespace danlu::hub
