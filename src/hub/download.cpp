#include "hub/download.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/file_lock.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/nearest_name.h"
#include "base/progress.h"
#include "base/threads.h"
#include "hub/cache.h"
#include "hub/environment.h"
#include "hub/fetch_file.h"
#include "hub/listing.h"
#include "hub/places.h"

namespace danlu::hub {
namespace {

std::vector<RemoteFile> wanted_files(const DownloadRequest& request, const Listing& listing) {
  const Repository& repository = request.repository;
  std::vector<RemoteFile> files = listing.files;
  if (!request.files.empty()) {
    files.clear();
    std::vector<std::string> names;
    for (const RemoteFile& file : listing.files) names.push_back(file.path);
    for (const std::string& name : request.files) {
      const auto at = std::find(names.begin(), names.end(), name);
      if (at == names.end()) {
        const auto near = nearest_name(name, names);
        throw UsageError(tr("[download] {} has no file '{}'", repository.id, name),
                         near ? tr("did you mean {}?", *near)
                              : tr("names count capitals; patterns go behind --include"));
      }
      files.push_back(listing.files[static_cast<size_t>(at - names.begin())]);
    }
  }
  files = chosen(files, request.include, request.exclude);
  if (files.empty()) {
    throw UsageError(
        tr("[download] {}: none of its {} files is asked for", repository.id, listing.files.size()),
        tr("--include and --exclude are shell patterns: '*.safetensors', 'data/*'"));
  }
  return files;
}

std::unique_ptr<Places> places_for(const DownloadRequest& request, const Listing& listing) {
  const Repository& repository = request.repository;
  const bool is_hf = repository.hub == Hub::kHuggingFace;
  if (!request.local_dir.empty()) {
    const fs::path parts =
        request.local_dir / (is_hf ? ".cache/huggingface/download" : "._____temp");
    if (!request.names.empty()) {
      return plain_directory(request.local_dir, request.local_dir / ".danlu-download", repository,
                             listing.commit, request.names);
    }
    return plain_directory(request.local_dir, parts, repository, listing.commit);
  }
  if (is_hf) return huggingface_cache(request.cache, repository, listing.commit, request.links);
  const fs::path folder = repository_folder(request.cache, repository);
  return plain_directory(folder / "snapshots" / listing.commit,
                         folder / "incomplete" / listing.commit, repository, listing.commit);
}

void refuse_changed(const Places& places, const std::vector<RemoteFile>& missing) {
  std::vector<std::string> changed;
  for (const RemoteFile& file : missing) {
    if (places.is_changed_by_hand(file)) changed.push_back(file.path);
  }
  if (changed.empty()) return;
  const size_t count = changed.size();
  changed.resize(std::min<size_t>(count, 3));
  throw UsageError(
      tr("[download] {}: {} files there are neither the hub's nor as they were downloaded: {}",
         places.directory().string(), count, fmt::join(changed, ", ")),
      tr("--force-download replaces them; another --local_dir keeps them"));
}

/// The same content under two names is fetched once where the cache keeps it once.
std::vector<RemoteFile> without_twins(const Places& places, const std::vector<RemoteFile>& files) {
  std::set<fs::path> seen;
  std::vector<RemoteFile> out;
  for (const RemoteFile& file : files) {
    if (seen.insert(places.part_of(file)).second) out.push_back(file);
  }
  return out;
}

class Fetching {
 public:
  Fetching(const DownloadRequest& request, const Listing& listing, const Places& places,
           const std::vector<RemoteFile>& files)
      : request_(request), listing_(listing), places_(places), files_(files) {
    uint64_t total = 0;
    for (const RemoteFile& file : files) {
      std::error_code error;
      const uint64_t have = fs::file_size(places.part_of(file), error);
      const uint64_t size = file.size.value_or(0);
      total += error || have > size ? size : size - have;
    }
    const fs::path where = places.part_of(files.front()).parent_path();
    fs::create_directories(where);
    require_free_space(where, total, request.repository.id);
    bar_ = std::make_unique<ProgressBar>("download", total, "B");
  }

  /// On so many connections; the first error ends all.
  void run() {
    {
      ThreadGroup threads;
      const size_t count = std::min(files_.size(), static_cast<size_t>(request_.workers));
      for (size_t i = 1; i < count; ++i) threads.start([this] { work(); });
      work();
    }
    if (error_) std::rethrow_exception(error_);
    bar_->finish();
  }

  uint64_t bytes() const { return static_cast<uint64_t>(std::max<int64_t>(0, bytes_)); }
  size_t num_unverified() const { return num_unverified_; }

 private:
  void work() {
    try {
      Client client(request_.client, [this] { return failed_.load() || pending_interrupt() != 0; });
      for (size_t at = next_++; at < files_.size() && !failed_; at = next_++)
        fetch(client, files_[at]);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
      failed_ = true;
    }
  }

  void fetch(Client& client, const RemoteFile& file) {
    const fs::path lock_file = places_.lock_of(file);
    fs::create_directories(lock_file.parent_path());
    const FileLock lock = FileLock::wait_for(lock_file, file.path);
    client.require_not_interrupted();
    const bool was_fetched_meanwhile = !request_.force && places_.has(file);
    if (!was_fetched_meanwhile) {
      const FileToFetch what{request_.repository, listing_, file, places_.part_of(file)};
      const bool is_verified = fetch_file(client, what, [this](int64_t came) {
        bytes_ += came;
        bar_->update(bytes());
      });
      if (!is_verified) ++num_unverified_;
      places_.keep(file);
    }
    ++num_done_;
    bar_->update(bytes(), tr("{}/{} files", num_done_.load(), files_.size()));
  }

  const DownloadRequest& request_;
  const Listing& listing_;
  const Places& places_;
  const std::vector<RemoteFile>& files_;
  std::unique_ptr<ProgressBar> bar_;
  std::atomic<size_t> next_ = 0, num_done_ = 0, num_unverified_ = 0;
  std::atomic<int64_t> bytes_ = 0;
  std::atomic<bool> failed_ = false;
  std::mutex mutex_;
  std::exception_ptr error_;
};

/// A process that was killed leaves the file of its lock, and nobody needs that lock again.
void remove_idle_locks(const Places& places, const std::vector<RemoteFile>& files) {
  for (const RemoteFile& file : files) {
    const fs::path lock = places.lock_of(file);
    std::error_code error;
    if (fs::exists(lock, error)) FileLock::try_take(lock);  // and given back: that removes it
  }
}

/// Hugging Face's cache names contents by their hash.
void require_hashes(const DownloadRequest& request, const std::vector<RemoteFile>& files) {
  if (!request.local_dir.empty() || request.repository.hub != Hub::kHuggingFace) return;
  for (const RemoteFile& file : files) {
    if (!file.etag().empty()) continue;
    throw CommError(tr("[download] {} says no hash of {}: it cannot be kept in the cache",
                       request.client.endpoint, file.path),
                    tr("--local_dir DIR takes it; then only its size can be checked"));
  }
}

}  // namespace

Downloaded download(const DownloadRequest& request) {
  watch_interrupts();
  Client client(request.client, [] { return pending_interrupt() != 0; });
  const Listing listing = list_files(client, request.repository);
  const std::vector<RemoteFile> wanted = wanted_files(request, listing);
  require_hashes(request, wanted);
  const std::unique_ptr<Places> places = places_for(request, listing);
  std::vector<char> is_there(wanted.size(), 0);
  if (!request.force) {
    parallel_for(wanted.size(), static_cast<size_t>(request.workers),
                 [&](size_t i) { is_there[i] = places->has(wanted[i]) ? 1 : 0; });
  }
  client.require_not_interrupted();
  std::vector<RemoteFile> missing;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (is_there[i] == 0) missing.push_back(wanted[i]);
  }
  if (!request.force) refuse_changed(*places, missing);
  missing = without_twins(*places, missing);
  Downloaded done{.directory = places->directory(),
                  .commit = listing.commit,
                  .num_files = wanted.size(),
                  .num_fetched = missing.size()};
  if (!missing.empty()) {
    Fetching fetching(request, listing, *places, missing);
    fetching.run();
    done.fetched_bytes = fetching.bytes();
    done.num_unverified = fetching.num_unverified();
  }
  fs::create_directories(done.directory);
  places->publish(wanted);
  remove_idle_locks(*places, wanted);
  return done;
}

DownloadRequest request_by_environment(const Repository& repository) {
  const char* no_links = std::getenv("HF_HUB_DISABLE_SYMLINKS");
  return {.repository = repository,
          .client = {.hub = repository.hub,
                     .endpoint = endpoint_of(repository.hub),
                     .token = token_of(repository.hub)},
          .cache = cache_of(repository.hub),
          .local_dir = {},
          .files = {},
          .include = {},
          .exclude = {},
          .links = !no_links || std::string(no_links) != "1"};
}

}  // namespace danlu::hub
