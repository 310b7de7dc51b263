#include "npu/staging.h"

#include <algorithm>
#include <array>
#include <cstring>
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
  void* memory = nullptr;
  size_t bytes = 0;
  AclEvent event = nullptr;
  bool is_taken = false;
};

/// Of one device, since events belong to its context.
class StagingPool {
 public:
  Staging& take(size_t bytes) {
    const std::lock_guard lock(mutex_);
    size_t held = 0;
    Staging* oldest = nullptr;
    for (Staging* const staging : all_) {
      held += staging->bytes;
      if (staging->is_taken || staging->bytes < bytes) continue;
      if (is_over(staging->event)) return taken(*staging);
      if (!oldest) oldest = staging;
    }
    constexpr size_t kMost = 16 * kStagingBytes;
    if (oldest && held >= kMost) {
      check(acl().aclrtSynchronizeEvent(oldest->event), "aclrtSynchronizeEvent");
      return taken(*oldest);
    }
    return taken(grow(bytes));
  }

  void give_back(Staging& staging, AclStream stream) {
    record(staging.event, stream);
    const std::lock_guard lock(mutex_);
    staging.is_taken = false;
    // Those that wait longest are asked first.
    all_.erase(std::find(all_.begin(), all_.end(), &staging));
    all_.push_back(&staging);
  }

  void close() {
    const std::lock_guard lock(mutex_);
    for (Staging* const staging : all_) {
      destroy(staging->event);
      acl().aclrtFreeHost(staging->memory);
      delete staging;
    }
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
    auto* const staging = new Staging{nullptr, size, new_event(), false};
    check(acl().aclrtMallocHost(&staging->memory, size), "aclrtMallocHost");
    all_.push_back(staging);
    return *staging;
  }

  std::mutex mutex_;
  std::vector<Staging*> all_;
};

StagingPool& staging_of(int device) {
  static auto* const pools = new std::array<StagingPool, kMostDevices>;
  return pools->at(static_cast<size_t>(device));
}

}  // namespace

void copy_in(int device, AclStream stream, void* to, const void* from, size_t bytes) {
  for (size_t at = 0; at < bytes; at += kStagingBytes) {
    const size_t count = std::min(kStagingBytes, bytes - at);
    Staging& staging = staging_of(device).take(count);
    std::memcpy(staging.memory, static_cast<const char*>(from) + at, count);
    check(acl().aclrtMemcpyAsync(static_cast<char*>(to) + at, count, staging.memory, count,
                                 kAclHostToDevice, stream),
          "aclrtMemcpyAsync");
    staging_of(device).give_back(staging, stream);
  }
}

void copy_out(int device, AclStream stream, void* to, const void* from, size_t bytes) {
  for (size_t at = 0; at < bytes; at += kStagingBytes) {
    const size_t count = std::min(kStagingBytes, bytes - at);
    Staging& staging = staging_of(device).take(count);
    check(acl().aclrtMemcpyAsync(staging.memory, count, static_cast<const char*>(from) + at, count,
                                 kAclDeviceToHost, stream),
          "aclrtMemcpyAsync");
    synchronize(stream);
    std::memcpy(static_cast<char*>(to) + at, staging.memory, count);
    staging_of(device).give_back(staging, stream);
  }
}

void close_staging(int device) { staging_of(device).close(); }

}  // namespace danlu::npu
