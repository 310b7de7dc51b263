#include "npu/staging.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "npu/context.h"
#include "npu/library.h"
#include "npu/status.h"
#include "npu/streams.h"

namespace danlu::npu {
namespace {

/// A piece of pinned memory, free again when its event is over.
struct Staging {
  Staging(size_t size, AclEvent made) : bytes(size), event(made) {
    const int code = acl().aclrtMallocHost(&memory, size);
    if (code != kAclOk) destroy(event);
    check(code, "aclrtMallocHost");
  }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging() {
    destroy(event);
    acl().aclrtFreeHost(memory);
  }
  void* memory = nullptr;
  const size_t bytes;
  const AclEvent event;
  bool is_taken = false;
};

/// Each device has a pool of its own, since events belong to a device's context.
class StagingPool {
 public:
  Staging& take(size_t bytes) {
    const std::lock_guard lock(mutex_);
    size_t held = 0;
    Staging* oldest = nullptr;
    for (const auto& staging : all_) {
      held += staging->bytes;
      if (staging->is_taken || staging->bytes < bytes) continue;
      if (is_over(staging->event)) return taken(*staging);
      if (!oldest) oldest = staging.get();
    }
    constexpr size_t kMost = 16 * kStagingBytes;
    if (oldest && held >= kMost) {
      check(acl().aclrtSynchronizeEvent(oldest->event), "aclrtSynchronizeEvent");
      return taken(*oldest);
    }
    return taken(grow(bytes));
  }

  void give_back(const Staging& staging) {
    const std::lock_guard lock(mutex_);
    const auto at = std::find_if(all_.begin(), all_.end(),
                                 [&](const auto& one) { return one.get() == &staging; });
    (*at)->is_taken = false;
    // The piece moves to the end, so that the one that was given back first is asked first.
    std::rotate(at, at + 1, all_.end());
  }

  void close() {
    const std::lock_guard lock(mutex_);
    all_.clear();
  }

 private:
  static Staging& taken(Staging& staging) {
    staging.is_taken = true;
    return staging;
  }
  Staging& grow(size_t bytes) {
    size_t size = size_t{64} << 10;
    while (size < bytes) size *= 2;
    return *all_.emplace_back(std::make_unique<Staging>(size, new_event()));
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<Staging>> all_;
};

StagingPool& staging_of(int device) {
  static auto* const pools = new std::array<StagingPool, kMostDevices>;
  return pools->at(static_cast<size_t>(device));
}

/// A piece for one copy. Whatever becomes of the copy, the piece is free again after what its
/// stream was given.
class TakenStaging {
 public:
  TakenStaging(int device, AclStream stream, size_t bytes)
      : pool_(staging_of(device)), stream_(stream), staging_(pool_.take(bytes)) {}
  TakenStaging(const TakenStaging&) = delete;
  TakenStaging& operator=(const TakenStaging&) = delete;
  ~TakenStaging() {
    if (!is_marked_) acl().aclrtRecordEvent(staging_.event, stream_);  // of a copy that failed
    pool_.give_back(staging_);
  }
  void* memory() const { return staging_.memory; }
  /// Behind the copy.
  void mark() {
    record(staging_.event, stream_);
    is_marked_ = true;
  }

 private:
  StagingPool& pool_;
  const AclStream stream_;
  Staging& staging_;
  bool is_marked_ = false;
};

}  // namespace

void copy_in(int device, AclStream stream, void* to, const void* from, size_t bytes) {
  for (size_t at = 0; at < bytes; at += kStagingBytes) {
    const size_t count = std::min(kStagingBytes, bytes - at);
    TakenStaging staging(device, stream, count);
    std::memcpy(staging.memory(), static_cast<const char*>(from) + at, count);
    check(acl().aclrtMemcpyAsync(static_cast<char*>(to) + at, count, staging.memory(), count,
                                 kAclHostToDevice, stream),
          "aclrtMemcpyAsync");
    staging.mark();
  }
}

void copy_out(int device, AclStream stream, void* to, const void* from, size_t bytes) {
  for (size_t at = 0; at < bytes; at += kStagingBytes) {
    const size_t count = std::min(kStagingBytes, bytes - at);
    TakenStaging staging(device, stream, count);
    check(acl().aclrtMemcpyAsync(staging.memory(), count, static_cast<const char*>(from) + at,
                                 count, kAclDeviceToHost, stream),
          "aclrtMemcpyAsync");
    synchronize(stream);
    std::memcpy(static_cast<char*>(to) + at, staging.memory(), count);
    staging.mark();
  }
}

void close_staging(int device) { staging_of(device).close(); }

}  // namespace danlu::npu
