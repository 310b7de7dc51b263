// npu/memory.h: memory of NPUs in large pieces that are kept, and blocks of them that streams use
// again in their own order.
#pragma once
#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>

#include <cstdint>

#include "npu/acl.h"

namespace danlu::npu {

/// Kernels read to 32 bytes after what they are given, so a block has them; and begin at multiples
/// of 512, as torch_npu's do, whose figures users know.
inline constexpr size_t kBlockUnit = 512, kTail = 32;

/// Memory on a device for work of the stream, from now on. Freed memory may be in use again by
/// later work of the same stream at once; nothing is given back to CANN before the device was
/// waited for, since aclrtFree does not wait. Errors: MemoryError naming what has how much.
void* take(int device, c10::StreamId stream, size_t bytes);
void give_back(void* memory) noexcept;

/// The memory is not used again before this stream, too, has done what it has been given by the
/// time the memory is given back.
void hold(void* memory, c10::StreamId stream);

/// libtorch's, of the calling thread's current device and stream.
c10::Allocator& allocator();
c10::DataPtr tensor_memory(int device, size_t bytes);

/// The current device, by the thread's c10 guard.
int current_device();
void set_current_device(int device) noexcept;

/// Bytes of tensors: now, and the most since reset_tensor_peak.
int64_t tensor_bytes(int device);
int64_t tensor_peak(int device);
void reset_tensor_peak(int device);
/// Bytes that are free on the card, to which everything that can go back has gone. Waits for it.
uint64_t available_bytes(int device);

/// At the end: everything goes back to CANN. REQUIRES: the device has been waited for.
void close_memory(int device);

}  // namespace danlu::npu
