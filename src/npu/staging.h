// npu/staging.h: pinned memory of the host, through which everything goes to and from a device:
// older CANN copies asynchronously from no other.
#pragma once
#include <cstddef>

#include "npu/acl.h"

namespace danlu::npu {

/// The most that one piece of a copy has.
inline constexpr size_t kStagingBytes = 8 << 20;

/// Copies to the device, in the stream's order; `from` is read before it returns.
void copy_in(int device, AclStream stream, void* to, const void* from, size_t bytes);
/// Copies to the host and waits for it.
void copy_out(int device, AclStream stream, void* to, const void* from, size_t bytes);

/// At the end: gives pinned memory back. REQUIRES: the device has been waited for.
void close_staging(int device);

}  // namespace danlu::npu
