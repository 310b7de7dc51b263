#include "npu/streams.h"

#include <array>
#include <atomic>
#include <mutex>
#include <utility>

#include "npu/context.h"
#include "npu/library.h"
#include "npu/status.h"

namespace danlu::npu {
namespace {

constexpr size_t kStreams = 1 + static_cast<size_t>(kStreamsBeside);

struct Streams {
  std::mutex mutex;
  std::array<std::array<std::atomic<AclStream>, kStreams>, kMostDevices> all{};
};
Streams& streams() {
  static auto* const one = new Streams;
  return *one;
}

thread_local std::array<c10::StreamId, kMostDevices> current_ids{};
std::atomic<int64_t> waits = 0;

}  // namespace

AclStream stream_of(int device, c10::StreamId id) {
  enter(device);
  Streams& known = streams();
  auto& own = known.all.at(static_cast<size_t>(device)).at(static_cast<size_t>(id));
  if (AclStream const stream = own.load()) return stream;
  const std::lock_guard lock(known.mutex);
  if (AclStream const stream = own.load()) return stream;
  AclStream stream = nullptr;
  check(acl().aclrtCreateStream(&stream), "aclrtCreateStream");
  own = stream;
  return stream;
}

c10::StreamId current_stream(int device) { return current_ids.at(static_cast<size_t>(device)); }

c10::StreamId exchange_stream(int device, c10::StreamId id) {
  return std::exchange(current_ids.at(static_cast<size_t>(device)), id);
}

c10::StreamId next_beside() {
  static std::atomic<c10::StreamId> given = 0;
  return 1 + given++ % kStreamsBeside;
}

AclEvent new_event() {
  AclEvent event = nullptr;
  check(acl().aclrtCreateEventExWithFlag(&event, kAclEventSync), "aclrtCreateEventExWithFlag");
  return event;
}

void record(AclEvent event, AclStream stream) {
  check(acl().aclrtRecordEvent(event, stream), "aclrtRecordEvent");
}

bool is_over(AclEvent event) {
  int status = 0;
  check(acl().aclrtQueryEventStatus(event, &status), "aclrtQueryEventStatus");
  return status == kAclEventComplete;
}

void destroy(AclEvent event) noexcept {
  if (event) acl().aclrtDestroyEvent(event);
}

void wait_for_event(AclStream stream, AclEvent event) {
  check(acl().aclrtStreamWaitEvent(stream, event), "aclrtStreamWaitEvent");
}

bool query(AclStream stream) {
  int status = 0;
  check(acl().aclrtStreamQuery(stream, &status), "aclrtStreamQuery");
  return status == kAclStreamComplete;
}

void synchronize(AclStream stream) {
  ++waits;
  check(acl().aclrtSynchronizeStream(stream), "aclrtSynchronizeStream");
}

int64_t waits_so_far() { return waits; }

void destroy_streams(int device) {
  for (auto& own : streams().all.at(static_cast<size_t>(device))) {
    if (AclStream const stream = own.exchange(nullptr)) acl().aclrtDestroyStream(stream);
  }
}

}  // namespace danlu::npu
