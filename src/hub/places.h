// hub/places.h: where the files of a download grow, and where they are put once all are whole.
#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "hub/repository.h"

namespace danlu::hub {

/// The layout that a download makes. Nothing has its final name before all files are verified;
/// what makes a directory a model (config.json, the list of its shards) comes last.
class Places {
 public:
  virtual ~Places() = default;
  /// The directory that the user gets.
  virtual std::filesystem::path directory() const = 0;
  /// Where the file grows; other processes have the same name for it, and a lock on it.
  virtual std::filesystem::path part_of(const RemoteFile& file) const = 0;
  virtual std::filesystem::path lock_of(const RemoteFile& file) const = 0;
  /// The listed content is there under its name already, or needs only that.
  virtual bool has(const RemoteFile& file) const = 0;
  /// A file of that name that this would destroy is one that somebody has changed.
  virtual bool is_changed_by_hand(const RemoteFile& file) const = 0;
  /// The part is whole: put it where it waits for the others.
  virtual void keep(const RemoteFile& file) const = 0;
  /// Gives all of `files` their names, the deciding ones last, and records the revision.
  virtual void publish(const std::vector<RemoteFile>& files) const = 0;
};

/// CACHE/models--org--name with blobs, snapshots and refs, as huggingface_hub. `links`: relative
/// symbolic links to the blobs; else files of their own.
std::unique_ptr<Places> huggingface_cache(const std::filesystem::path& cache,
                                          const Repository& repository, const std::string& commit,
                                          bool links);
/// Plain files in `directory`; at Hugging Face with what its tool records of each in
/// .cache/huggingface/download. `parts`: where files grow and wait. `names`: what files are called
/// there where not as on the hub; if there are any, nothing but the files is left.
std::unique_ptr<Places> plain_directory(const std::filesystem::path& directory,
                                        const std::filesystem::path& parts,
                                        const Repository& repository, const std::string& commit,
                                        const std::map<std::string, std::string>& names = {});

/// Whether it says what the directory is: without it nothing takes the directory for a model.
bool decides(const std::string& path);

}  // namespace danlu::hub
