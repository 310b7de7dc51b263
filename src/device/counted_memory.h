// device/counted_memory.h: the host memory that tensors of this process are in: where it comes
// from, and how much it is.
#pragma once
#include <cstdint>

namespace danlu::device {

/// From now on what tensors take from the host is counted, and large ones take it from blocks that
/// are kept and used again (device/block_pool.h), small ones from what their thread keeps
/// (device/small_blocks.h: 1 MiB at most, in no figure below and not given back); those that are
/// there stay as they are. Where an allocation of C++ fails, what is free is given back and it is
/// tried again. Again: no effect. DANLU_HOST_MEMORY=malloc: counted, but taken from the C library;
/// so under sanitizers, which then see every tensor's borders. Files mapped into memory, and what
/// libraries take past torch's allocator, are never counted. Errors: UsageError for another value
/// than "pool" or "malloc".
void count_host_memory();

/// Bytes that all threads have, as the allocator rounds them; 0 before count_host_memory(). Blocks
/// that are kept free are not in it.
int64_t host_memory();
/// The most at one time since reset_peak_host_memory().
int64_t peak_host_memory();
void reset_peak_host_memory();

/// What the blocks, in use and free, have of the system; 0 where tensors take theirs elsewhere.
int64_t mapped_host_memory();
/// Gives blocks that are free back to the system: between parts of a run that need different
/// memory. Returns how many bytes.
int64_t release_host_memory();

}  // namespace danlu::device
