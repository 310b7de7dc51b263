// measure/gauge.h: what this machine could do in this moment.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "bench/work.h"

namespace danlu::measure {

/// Seconds of the clock that runs are timed with. One thread: processor seconds of the whole
/// process, which others on the machine do not lengthen and a second thread does; several: the
/// wall's.
class Stopwatch {
 public:
  explicit Stopwatch(size_t threads) : is_alone_(threads == 1) {}
  double now() const;

 private:
  bool is_alone_;
};

/// Measures limits with so many threads. Keeps memory larger than the caches: 256 MB and more.
class Gauge {
 public:
  explicit Gauge(size_t threads);

  /// Takes about 20 ms. The best of a few slices counts: an interruption is no limit of the
  /// machine. A neighbour that shares a core is one, and slows all slices.
  bench::Limits read();
  /// Bytes a second that are read, alone: about 5 ms.
  double read_bandwidth();

 private:
  double copy_bandwidth();
  double update_bandwidth();
  /// Bytes a second of the fastest of some passes over parts of the memory, on all threads.
  double bandwidth(const std::function<void(size_t begin, size_t count)>& pass);

  size_t threads_;
  size_t words_;  ///< of 8 bytes, in each half
  std::unique_ptr<uint64_t[]> from_, to_;
  size_t next_ = 0;  ///< the part of the memory that is next
};

}  // namespace danlu::measure
