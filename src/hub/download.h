// hub/download.h: a repository, or some of its files, from a hub onto this machine.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "hub/client.h"
#include "hub/repository.h"

namespace danlu::hub {

struct DownloadRequest {
  Repository repository;
  ClientSettings client;
  std::filesystem::path cache;      ///< in the layout of the hub's own tool
  std::filesystem::path local_dir;  ///< empty: into the cache
  std::vector<std::string> files;   ///< exact names; empty: all
  /// What files are called in local_dir, where not as on the hub. Then no record of them is left
  /// beside them.
  std::map<std::string, std::string> names = {};
  std::vector<std::string> include, exclude;  ///< see chosen()
  int workers = 8;                            ///< files at a time
  bool force = false;  ///< fetch what is there too, and replace what was changed by hand
  bool links = true;   ///< in Hugging Face's cache; false: HF_HUB_DISABLE_SYMLINKS
};

struct Downloaded {
  std::filesystem::path directory;
  std::string commit;
  size_t num_files = 0;       ///< that were asked for
  size_t num_fetched = 0;     ///< of them
  size_t num_unverified = 0;  ///< of the fetched: the hub says no hash of them
  uint64_t fetched_bytes = 0;
};

/// Lists, looks at what is there, asks for the disk space, fetches several files at a time with a
/// progress line, verifies each, and names them when all are whole. Stopped or failed it leaves
/// parts that the next call goes on from. Several processes may fetch the same.
/// Errors: as list_files and fetch_file; UsageError (a pattern or name that matches no file; files
/// that were changed by hand, without `force`); IoError (not enough space).
Downloaded download(const DownloadRequest& request);

/// The request that the environment alone makes of `repository`, into the hub's cache.
DownloadRequest request_by_environment(const Repository& repository);

}  // namespace danlu::hub
