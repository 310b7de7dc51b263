// measure/gauge.h: what this machine could do in this moment.
#pragma once
#include <ATen/core/Tensor.h>

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
/// Of another device its limits are what its own products of large matrices, its copies and sums
/// reach through the table of kernels, by the wall's clock.
class Gauge {
 public:
  explicit Gauge(size_t threads, const at::Device& device = at::Device(at::kCPU));

  /// Takes about 20 ms. The best of a few slices counts: an interruption is no limit of the
  /// machine. A neighbour that shares a core is one, and slows all slices.
  bench::Limits read();
  /// Bytes a second that are read, alone: about 5 ms.
  double read_bandwidth();

 private:
  bench::Limits read_device();
  /// Operations a second of a product of two square matrices.
  double device_flops(at::ScalarType type);
  double copy_bandwidth();
  double update_bandwidth();
  /// Bytes a second of the fastest of some passes over parts of the memory, on all threads.
  double bandwidth(const std::function<void(size_t begin, size_t count)>& pass);

  size_t threads_;
  at::Device device_;
  int64_t side_ = 0;            ///< of matrices whose product takes a while on the device
  at::Tensor values_, others_;  ///< of the device, larger than its caches
  size_t words_;                ///< of 8 bytes, in each half
  std::unique_ptr<uint64_t[]> from_, to_;
  size_t next_ = 0;  ///< the part of the memory that is next
};

}  // namespace danlu::measure
