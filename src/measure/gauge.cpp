#include "measure/gauge.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstring>
#include <functional>

#include "base/cpu_class.h"
#include "base/threads.h"
#include "device/peak.h"
#include "device/select.h"
#include "device/stream.h"
#include "ops/linear.h"
#include "ops/pointwise.h"

namespace danlu::measure {
namespace {

constexpr int kPeakSlices = 3, kPasses = 4;
constexpr size_t kPassWords = size_t{2} << 20;  // 16 MB: about 1 ms, far above a barrier

size_t words_needed(size_t threads) {
  size_t bytes = size_t{128} << 20;
#ifdef _SC_LEVEL3_CACHE_SIZE
  // What one cache of the third level holds; processors with several hold more in all.
  if (const long cache = ::sysconf(_SC_LEVEL3_CACHE_SIZE); cache > 0)
    bytes = std::max(bytes, 4 * static_cast<size_t>(cache));
#endif
  bytes = std::max(bytes, threads * (size_t{16} << 20));
  return bytes / sizeof(uint64_t) / kPassWords * kPassWords;
}

/// A line of the cache; a processor with narrower vectors takes several of them.
using Line [[gnu::vector_size(64), gnu::aligned(8), gnu::may_alias]] = uint64_t;
constexpr size_t kLineWords = sizeof(Line) / sizeof(uint64_t);
/// Read side by side: a core has more lines on their way than it fetches ahead of one of them.
constexpr size_t kStreams = 4;

[[gnu::always_inline]] inline uint64_t sum_lines(const uint64_t* words, size_t count) {
  const size_t stream = count / kStreams;
  Line sums[kStreams] = {};
  for (size_t i = 0; i + kLineWords <= stream; i += kLineWords)
    for (size_t s = 0; s < kStreams; ++s)
      sums[s] += *reinterpret_cast<const Line*>(words + s * stream + i);
  uint64_t all = 0;
  for (const Line& sum : sums)
    for (size_t i = 0; i < kLineWords; ++i) all += sum[i];
  return all;
}

[[gnu::always_inline]] inline void change_lines(uint64_t* words, size_t count) {
  const size_t stream = count / kStreams;
  for (size_t i = 0; i + kLineWords <= stream; i += kLineWords)
    for (size_t s = 0; s < kStreams; ++s) *reinterpret_cast<Line*>(words + s * stream + i) ^= 1;
}

#if defined(__x86_64__)
[[gnu::target("avx512f")]] uint64_t sum_512(const uint64_t* words, size_t count) {
  return sum_lines(words, count);
}
[[gnu::target("avx512f")]] void change_512(uint64_t* words, size_t count) {
  change_lines(words, count);
}
[[gnu::target("avx2")]] uint64_t sum_256(const uint64_t* words, size_t count) {
  return sum_lines(words, count);
}
[[gnu::target("avx2")]] void change_256(uint64_t* words, size_t count) {
  change_lines(words, count);
}
#endif

uint64_t sum_of(const uint64_t* words, size_t count) {
#if defined(__x86_64__)
  if (cpu_class() >= CpuClass::kAvx512) return sum_512(words, count);
  if (cpu_class() >= CpuClass::kAvx2) return sum_256(words, count);
#endif
  return sum_lines(words, count);
}

void change(uint64_t* words, size_t count) {
#if defined(__x86_64__)
  if (cpu_class() >= CpuClass::kAvx512) return change_512(words, count);
  if (cpu_class() >= CpuClass::kAvx2) return change_256(words, count);
#endif
  change_lines(words, count);
}

/// Seconds of the fastest of some passes, each on all threads at once: pass(number, thread).
double fastest_pass(size_t num_threads, const std::function<void(int, size_t)>& pass) {
  const Stopwatch watch(num_threads);
  double best = 1e30, begin = 0;
  int number = 0;
  const auto end_of_phase = [&]() noexcept {
    const double now = watch.now();
    if (number > 0) best = std::min(best, now - begin);
    begin = now;
    ++number;
  };
  if (num_threads == 1) {
    end_of_phase();
    for (int i = 0; i < kPasses; ++i) {
      pass(i, 0);
      end_of_phase();
    }
    return best;
  }
  std::barrier barrier(static_cast<std::ptrdiff_t>(num_threads), end_of_phase);
  ThreadGroup threads;
  try {
    for (size_t thread = 0; thread < num_threads; ++thread) {
      threads.start([&, thread] {
        barrier.arrive_and_wait();
        for (int i = 0; i < kPasses; ++i) {
          pass(i, thread);
          barrier.arrive_and_wait();
        }
      });
    }
  } catch (...) {
    // Threads that are there must not wait for those that never come.
    for (size_t i = threads.size(); i < num_threads; ++i) barrier.arrive_and_drop();
    throw;
  }
  threads.join();
  return best;
}

}  // namespace

namespace {

constexpr double kSliceSeconds = 0.004;
constexpr int64_t kMostSide = 8192, kMostValues = int64_t{1} << 28;

/// Seconds of the fastest of some runs on the device, each waited for.
double fastest_on(const at::Device& device, const std::function<void()>& run) {
  const device::Stream stream = device::Stream::current(device);
  const Stopwatch watch(2);
  double best = 1e30;
  for (int i = 0; i < kPasses; ++i) {
    stream.synchronize();
    const double begin = watch.now();
    run();
    stream.synchronize();
    best = std::min(best, watch.now() - begin);
  }
  return best;
}

}  // namespace

Gauge::Gauge(size_t threads, const at::Device& device)
    : threads_(threads),
      device_(device),
      words_(words_needed(threads)),
      from_(new uint64_t[words_]),
      to_(new uint64_t[words_]) {
  std::fill_n(from_.get(), words_, 1);
  std::fill_n(to_.get(), words_, 2);
}

double Gauge::bandwidth(const std::function<void(size_t begin, size_t count)>& pass) {
  const size_t part = kPassWords / threads_ / 64 * 64;
  const double seconds = fastest_pass(threads_, [&](int number, size_t thread) {
    pass((next_ + static_cast<size_t>(number) * kPassWords) % words_ + thread * part, part);
  });
  next_ = (next_ + kPasses * kPassWords) % words_;
  return static_cast<double>(part * threads_ * sizeof(uint64_t)) / seconds;
}

double Gauge::read_bandwidth() {
  std::atomic<uint64_t> sum{0};  // read by nobody: else a compiler drops the work
  return bandwidth([&](size_t begin, size_t count) { sum += sum_of(from_.get() + begin, count); });
}

double Gauge::copy_bandwidth() {
  return 2 * bandwidth([&](size_t begin, size_t count) {
           std::memcpy(to_.get() + begin, from_.get() + begin, count * sizeof(uint64_t));
         });
}

double Gauge::update_bandwidth() {
  return 2 * bandwidth([&](size_t begin, size_t count) { change(to_.get() + begin, count); });
}

double Gauge::device_flops(at::ScalarType type) {
  const at::NoGradGuard no_grad;
  const auto options = at::TensorOptions(type).device(device_);
  const auto seconds_of = [&](int64_t side) {
    const at::Tensor x = at::empty({side, side}, options).zero_();
    return fastest_on(device_, [&] { ops::linear(x, x); });
  };
  if (side_ == 0) {
    side_ = 64;
    while (side_ < kMostSide && seconds_of(side_) < kSliceSeconds) side_ *= 2;
  }
  const auto side = static_cast<double>(side_);
  return 2 * side * side * side / seconds_of(side_);
}

bench::Limits Gauge::read_device() {
  const at::NoGradGuard no_grad;
  bench::Limits limits;
  limits.f32_flops = device_flops(at::kFloat);
  if (device::multiplies_natively(device_, at::kBFloat16))
    limits.bf16_flops = device_flops(at::kBFloat16);
  const auto grow = [&](int64_t rows) {
    const auto options = at::TensorOptions(at::kFloat).device(device_);
    values_ = at::empty({rows, 1024}, options).zero_();
    others_ = at::empty({rows, 1024}, options).zero_();
  };
  const auto update_seconds = [&] {
    return fastest_on(device_, [&] { ops::add_to(others_, values_); });
  };
  if (!values_.defined()) grow(64);
  while (values_.numel() < kMostValues && update_seconds() < kSliceSeconds)
    grow(2 * values_.size(0));
  const auto bytes = static_cast<double>(values_.nbytes());
  limits.copy_bytes = 2 * bytes / fastest_on(device_, [&] { others_.copy_(values_); });
  limits.update_bytes = 3 * bytes / update_seconds();
  const double sums = bytes / fastest_on(device_, [&] { ops::column_sums(values_); });
  limits.read_bytes = std::max({sums, limits.copy_bytes, limits.update_bytes});
  return limits;
}

bench::Limits Gauge::read() {
  if (!device_.is_cpu()) return read_device();
  const bool has_bf16 = has_bf16_dots();
  bench::Limits limits;
  limits.f32_flops = device::cpu_flops_now(false, threads_, kPeakSlices);
  if (has_bf16) limits.bf16_flops = device::cpu_flops_now(true, threads_, kPeakSlices);
  limits.read_bytes = read_bandwidth();
  limits.copy_bytes = copy_bandwidth();
  limits.update_bytes = update_bandwidth();
  return limits;
}

double Stopwatch::now() const {
  timespec time{};
  ::clock_gettime(is_alone_ ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

}  // namespace danlu::measure
