// device/counted_memory.h: bytes of the tensors of this process that are in host memory.
#pragma once
#include <cstdint>

namespace danlu::device {

/// From now on what tensors take from the host is counted; what they have is not. Again: no effect.
/// Files mapped into memory, and what libraries take past torch's allocator, are never counted.
void count_host_memory();

/// As the allocator rounds them, of all threads; 0 before count_host_memory().
int64_t host_memory();
/// The most at one time since reset_peak_host_memory().
int64_t peak_host_memory();
void reset_peak_host_memory();

}  // namespace danlu::device
