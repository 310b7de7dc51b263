// Allocation, copies and fills.
#include "core/memory.h"

#include <cstdio>
#include <cstring>

#include "acl_api.h"
#include "core/report.h"
#include "core/scheduler.h"

using namespace npu_sim;

namespace {

std::string text_of(const char* function, const std::string& what) {
  return std::string("EE1001: The argument is invalid. ") + function + ": " + what;
}

aclError invalid(const char* function, const std::string& what) {
  return fail(107000, text_of(function, what));
}

/// Where the simulator finds bytes that may be a card's or the host's. Throws TaskError for a
/// card's that do not live.
struct Place {
  std::shared_ptr<Block> block;
  char* data;
};

Place place_of(const void* p, size_t bytes) {
  if (!is_device_address(p)) return {nullptr, static_cast<char*>(const_cast<void*>(p))};
  const auto block = block_around(p, bytes);
  if (!block)
    throw TaskError{507035,
                    "the address of a copy does not lie in memory of a card (freed, or too short)"};
  return {block, block->data() + (reinterpret_cast<uintptr_t>(p) - block->begin())};
}

/// Whether addresses are what the kind says.
aclError check_kind(const char* function, const void* dst, const void* src, aclrtMemcpyKind kind) {
  const bool to = is_device_address(dst), from = is_device_address(src);
  bool right = true;
  if (kind == ACL_MEMCPY_HOST_TO_HOST) right = !to && !from;
  if (kind == ACL_MEMCPY_HOST_TO_DEVICE) right = to && !from;
  if (kind == ACL_MEMCPY_DEVICE_TO_HOST) right = !to && from;
  if (kind == ACL_MEMCPY_DEVICE_TO_DEVICE || kind == ACL_MEMCPY_INNER_DEVICE_TO_DEVICE)
    right = to && from;
  return right ? 0
               : invalid(function, "the addresses are not those of kind " + std::to_string(kind));
}

void count_copy(const void* dst, const void* src, size_t bytes) {
  const bool to = is_device_address(dst), from = is_device_address(src);
  if (to && !from) count("bytes.h2d", static_cast<int64_t>(bytes));
  if (!to && from) count("bytes.d2h", static_cast<int64_t>(bytes));
  if (to && from) count("bytes.d2d", static_cast<int64_t>(bytes));
}

/// The host writes memory now: nothing queued may use it. False after a report.
void check_host_write(const char* function, const void* dst, size_t bytes) {
  if (!is_device_address(dst)) return;
  const std::string user = pending_use(dst, bytes, false);
  if (!user.empty()) {
    violation(std::string(function) + " writes memory which " + user +
              " may still use: nobody waited for it");
  }
}

uint64_t checksum(const char* data, size_t bytes) {
  uint64_t sum = 1469598103934665603ull;
  for (size_t i = 0; i < bytes; ++i)
    sum = (sum ^ static_cast<unsigned char>(data[i])) * 1099511628211ull;
  return sum;
}

struct Copy {
  void* dst;
  const void* src;
  size_t dpitch, spitch, width, height;
  size_t to_bytes() const { return height ? dpitch * (height - 1) + width : 0; }
  size_t from_bytes() const { return height ? spitch * (height - 1) + width : 0; }
};

uint64_t source_sum(const Copy& c) {
  uint64_t sum = 0;
  for (size_t i = 0; i < c.height; ++i)
    sum = sum * 31 + checksum(static_cast<const char*>(c.src) + i * c.spitch, c.width);
  return sum;
}

void do_copy(const Copy& c) {
  const Place to = place_of(c.dst, c.to_bytes());
  const Place from = place_of(c.src, c.from_bytes());
  for (size_t i = 0; i < c.height; ++i)
    std::memmove(to.data + i * c.dpitch, from.data + i * c.spitch, c.width);
}

Range range_of(const void* p, size_t bytes, bool write) {
  return write ? writes(p, bytes) : reads(p, bytes);
}

aclError copy_later(const char* function, const Copy& c, aclrtMemcpyKind kind, aclrtStream handle) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  if (const aclError error = enter(function, Need::kContext, &context)) return error;
  if (const aclError error = find_stream(context, handle, &stream)) return error;
  if (!c.dst || !c.src) return invalid(function, "null address");
  const bool to_host = !is_device_address(c.dst), from_host = !is_device_address(c.src);
  if (to_host && from_host)
    return fail(207000, text_of(function, "host to host is not asynchronous"));
  if (const aclError error = check_kind(function, c.dst, c.src, kind)) return error;
  count_copy(c.dst, c.src, c.width * c.height);
  count("copies.async");
  Task task;
  task.name = function;
  task.ranges = {range_of(c.dst, c.to_bytes(), true), range_of(c.src, c.from_bytes(), false)};
  const void* host = to_host ? c.dst : c.src;
  const bool pinned =
      !(to_host || from_host) || is_pinned(host, to_host ? c.to_bytes() : c.from_bytes());
  if (!pinned) {
    // Pageable memory: the call comes back when the stream came there and the copy is done.
    count("copies.pageable");
    task.work = [c] { do_copy(c); };
    const aclError error = enqueue(stream, std::move(task));
    return error ? error : wait_for_stream(stream, -1);
  }
  if (to_host) {
    for (size_t i = 0; i < c.height; ++i)
      std::memset(static_cast<char*>(c.dst) + i * c.dpitch, kPoison, c.width);
  }
  const uint64_t sum = from_host ? source_sum(c) : 0;
  task.work = [c, from_host, sum, function] {
    if (from_host && source_sum(c) != sum) {
      violation(std::string(function) + ": the pinned source was changed before the copy ran");
    }
    do_copy(c);
  };
  return enqueue(stream, std::move(task));
}

}  // namespace

extern "C" {

aclError aclrtMalloc(void** devPtr, size_t size, aclrtMemMallocPolicy policy) {
  Context* context = nullptr;
  if (const aclError error = enter("aclrtMalloc", Need::kContext, &context)) return error;
  if (!devPtr || size == 0) return invalid("aclrtMalloc", "null pointer or size 0");
  static const int kKnown[] = {0, 1, 2, 3, 4, 5, 6, 7, 0x100, 0x1000, 0x100000};
  bool known = false;
  for (const int one : kKnown) known = known || policy == one;
  if (!known) return invalid("aclrtMalloc", "unknown policy " + std::to_string(policy));
  if (const aclError error = allocate_device(context->card, size, devPtr)) return error;
  count("allocations");
  count("bytes.allocated", static_cast<int64_t>(size));
  return 0;
}

aclError aclrtMallocAlign32(void** devPtr, size_t size, aclrtMemMallocPolicy policy) {
  return aclrtMalloc(devPtr, size, policy);
}

aclError aclrtFree(void* devPtr) {
  if (const aclError error = enter("aclrtFree", Need::kContext)) return error;
  if (!devPtr) return invalid("aclrtFree", "null pointer");
  const std::shared_ptr<Block> block = release_device(devPtr);
  if (!block) {
    violation("aclrtFree of an address that is not the beginning of a live block (freed twice?)");
    return invalid("aclrtFree", "no such block");
  }
  const std::string user = pending_use(devPtr, block->bytes(), false);
  if (!user.empty())
    violation("aclrtFree of memory which " + user + " may still use: nobody waited for it");
  count("frees");
  return 0;
}

aclError aclrtMallocHost(void** hostPtr, size_t size) {
  if (const aclError error = enter("aclrtMallocHost", Need::kContext)) return error;
  if (!hostPtr || size == 0) return invalid("aclrtMallocHost", "null pointer or size 0");
  *hostPtr = allocate_host(size);
  if (!*hostPtr) return fail(207001, "EL0004: no host memory");
  count("allocations.host");
  return 0;
}

aclError aclrtFreeHost(void* hostPtr) {
  if (const aclError error = enter("aclrtFreeHost", Need::kContext)) return error;
  if (!hostPtr) return invalid("aclrtFreeHost", "null pointer");
  const std::string user = pending_use(hostPtr, 1, false);
  if (!user.empty()) violation("aclrtFreeHost of memory which " + user + " may still use");
  if (release_host(hostPtr)) return 0;
  violation("aclrtFreeHost of memory that aclrtMallocHost did not give (or freed twice)");
  return invalid("aclrtFreeHost", "no such memory");
}

aclError aclrtMemcpy(void* dst, size_t destMax, const void* src, size_t bytes,
                     aclrtMemcpyKind kind) {
  Context* context = nullptr;
  if (const aclError error = enter("aclrtMemcpy", Need::kContext, &context)) return error;
  if (!dst || !src || bytes == 0) return invalid("aclrtMemcpy", "null address or size 0");
  if (destMax < bytes) return invalid("aclrtMemcpy", "destMax is less than count");
  if (const aclError error = check_kind("aclrtMemcpy", dst, src, kind)) return error;
  if (context->default_stream->capture)
    return fail(107000, "EE1001: aclrtMemcpy while a stream is captured");
  count("copies.sync");
  count_copy(dst, src, bytes);
  check_host_write("aclrtMemcpy", dst, bytes);
  try {
    do_copy({dst, src, bytes, bytes, bytes, 1});
    const std::string writer = is_device_address(src) ? pending_use(src, bytes, true) : "";
    if (!writer.empty()) {
      std::fprintf(
          stderr,
          "NPU SIMULATOR: aclrtMemcpy reads memory which %s may still write: it reads poison\n",
          writer.c_str());
      count("poisoned_reads");
      std::memset(place_of(dst, bytes).data, kPoison, bytes);
    }
  } catch (const TaskError& error) {
    return invalid("aclrtMemcpy", error.text);
  }
  return 0;
}

aclError aclrtMemcpyAsync(void* dst, size_t destMax, const void* src, size_t bytes,
                          aclrtMemcpyKind kind, aclrtStream stream) {
  if (destMax < bytes) return invalid("aclrtMemcpyAsync", "destMax is less than count");
  return copy_later("aclrtMemcpyAsync", {dst, src, bytes, bytes, bytes, 1}, kind, stream);
}

aclError aclrtMemcpy2dAsync(void* dst, size_t dpitch, const void* src, size_t spitch, size_t width,
                            size_t height, aclrtMemcpyKind kind, aclrtStream stream) {
  if (width > dpitch || width > spitch)
    return invalid("aclrtMemcpy2dAsync", "width is more than a pitch");
  return copy_later("aclrtMemcpy2dAsync", {dst, src, dpitch, spitch, width, height}, kind, stream);
}

aclError aclrtMemset(void* devPtr, size_t maxCount, int32_t value, size_t bytes) {
  if (const aclError error = enter("aclrtMemset", Need::kContext)) return error;
  if (!devPtr || maxCount < bytes)
    return invalid("aclrtMemset", "null address or maxCount less than count");
  if (!is_device_address(devPtr) && !is_pinned(devPtr, bytes))
    return invalid("aclrtMemset", "pageable host memory");
  check_host_write("aclrtMemset", devPtr, bytes);
  try {
    std::memset(place_of(devPtr, bytes).data, value, bytes);
  } catch (const TaskError& error) {
    return invalid("aclrtMemset", error.text);
  }
  return 0;
}

aclError aclrtMemsetAsync(void* devPtr, size_t maxCount, int32_t value, size_t bytes,
                          aclrtStream handle) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  if (const aclError error = enter("aclrtMemsetAsync", Need::kContext, &context)) return error;
  if (const aclError error = find_stream(context, handle, &stream)) return error;
  if (!devPtr || maxCount < bytes)
    return invalid("aclrtMemsetAsync", "null address or maxCount less than count");
  if (!is_device_address(devPtr) && !is_pinned(devPtr, bytes))
    return invalid("aclrtMemsetAsync", "pageable host memory");
  Task task;
  task.name = "aclrtMemsetAsync";
  task.ranges = {writes(devPtr, bytes)};
  task.work = [=] { std::memset(place_of(devPtr, bytes).data, value, bytes); };
  return enqueue(stream, std::move(task));
}
}
