// bench/work.h: what a piece of computing has to do at least, and what the machine could do in that
// moment: the roofline (Williams, Waterman, Patterson, CACM 52(4), 2009).
#pragma once

namespace danlu::bench {

/// What a machine can do, measured; a second.
struct Limits {
  double f32_flops = 0;
  double bf16_flops = 0;  ///< 0: it multiplies no bf16, and computes it in f32
  double read_bytes = 0;  ///< from memory, past the caches
  double copy_bytes = 0;  ///< to another place: read and written bytes together
  /// In place: read and written bytes together. Higher than read_bytes where memory takes both at
  /// once.
  double update_bytes = 0;
};

/// The least that has to be done: each multiplication once, each byte of the operands moved once.
struct Work {
  double flops = 0;
  bool in_bf16 = false;  ///< its multiplications are of bf16
  double bytes_read = 0, bytes_written = 0;
  double bytes() const { return bytes_read + bytes_written; }
};

enum class Bound { kCompute, kMemory };

/// The larger of what its multiplications and its bytes take at these limits. Bytes that are both
/// read and written go at the speed of updates, the others at that of reading.
double least_seconds(const Work& work, const Limits& limits);

/// Which of the two that is.
Bound bound_of(const Work& work, const Limits& limits);

}  // namespace danlu::bench
