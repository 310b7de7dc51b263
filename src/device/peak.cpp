#include "device/peak.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <mutex>
#include <numeric>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "base/clock.h"
#include "base/cpu_class.h"
#include "base/error.h"
#include "base/threads.h"
#include "base/tile_registers.h"
#include "device/npu.h"
#include "device/select.h"

namespace danlu::device {
namespace {

// Independent chains: more than latency (4 cycles) x units (2) of any current core.
constexpr int kChains = 12;
constexpr int kRounds = 2048;
constexpr double kSliceSeconds = 0.002;
constexpr int kSlices = 8;
constexpr double kDeadlineSeconds = 0.03;  // on a machine that is busy with other work

// Kernels return a part of their sums so that no compiler can drop the work: each lane does the
// same.
using Kernel = float (*)(float);
struct Counted {
  Kernel run;
  double flops;  ///< of one call
};

#if defined(__x86_64__)

[[gnu::target("avx512f,avx512bw,avx512bf16")]] float chain_bf16_512(float seed) {
  __m512 sums[kChains];
  for (auto& sum : sums) sum = _mm512_set1_ps(seed);
  const __m512bh a = (__m512bh)_mm512_set1_epi32(0x3f803f80),
                 b = (__m512bh)_mm512_set1_epi32(0x3a833a83);
  for (int round = 0; round < kRounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) sums[i] = _mm512_dpbf16_ps(sums[i], a, b);
  }
  __m512 all = sums[0];
  for (int i = 1; i < kChains; ++i) all = _mm512_add_ps(all, sums[i]);
  float lanes[16];
  _mm512_storeu_ps(lanes, all);
  return lanes[0] + lanes[15];
}

[[gnu::target("avx512f")]] float chain_fp32_512(float seed) {
  __m512 sums[kChains];
  for (auto& sum : sums) sum = _mm512_set1_ps(seed);
  const __m512 a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(0.001f);
  for (int round = 0; round < kRounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) sums[i] = _mm512_fmadd_ps(sums[i], a, b);
  }
  __m512 all = sums[0];
  for (int i = 1; i < kChains; ++i) all = _mm512_add_ps(all, sums[i]);
  float lanes[16];
  _mm512_storeu_ps(lanes, all);
  return lanes[0] + lanes[15];
}

[[gnu::target("avx2,fma")]] float chain_fp32_256(float seed) {
  __m256 sums[kChains];
  for (auto& sum : sums) sum = _mm256_set1_ps(seed);
  const __m256 a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(0.001f);
  for (int round = 0; round < kRounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) sums[i] = _mm256_fmadd_ps(sums[i], a, b);
  }
  __m256 all = sums[0];
  for (int i = 1; i < kChains; ++i) all = _mm256_add_ps(all, sums[i]);
  float lanes[8];
  _mm256_storeu_ps(lanes, all);
  return lanes[0] + lanes[7];
}

float chain_fp32_128(float seed) {
  __m128 sums[kChains];
  for (auto& sum : sums) sum = _mm_set1_ps(seed);
  const __m128 a = _mm_set1_ps(0.999f), b = _mm_set1_ps(0.001f);
  for (int round = 0; round < kRounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) sums[i] = _mm_add_ps(_mm_mul_ps(sums[i], a), b);
  }
  __m128 all = sums[0];
  for (int i = 1; i < kChains; ++i) all = _mm_add_ps(all, sums[i]);
  return _mm_cvtss_f32(all);
}

/// Four chains hide the latency (52 cycles) of instructions that take the unit for 16.
float chain_tiles(float seed) {
  using tiles::Hardware;
  alignas(64) float sums[tiles::kRows][tiles::kRows];
  std::fill_n(&sums[0][0], tiles::kRows * tiles::kRows, seed);
  uint16_t pairs[2 * tiles::kRows];
  std::fill_n(pairs, std::size(pairs), 0x3a83);
  tiles::Configuration shapes;
  for (size_t tile = 0; tile < tiles::kRegisters; ++tile)
    shapes.set(tile, tiles::kRows, tiles::kRowBytes);
  Hardware::configure(shapes);
  Hardware::load<0>(sums, sizeof sums[0]);
  Hardware::zero<1>();
  Hardware::zero<2>();
  Hardware::zero<3>();
  Hardware::load<4>(pairs, 0);
  Hardware::load<5>(pairs, 0);
  for (int round = 0; round < kRounds; ++round) {
    Hardware::multiply_add<0, 4, 5>();
    Hardware::multiply_add<1, 4, 5>();
    Hardware::multiply_add<2, 4, 5>();
    Hardware::multiply_add<3, 4, 5>();
  }
  Hardware::store<0>(sums, sizeof sums[0]);
  Hardware::release();
  return sums[0][0];
}

Counted choose(bool bf16) {
  constexpr double kSteps = static_cast<double>(kChains) * kRounds * 2;
  if (bf16 && cpu_class() == CpuClass::kAmx)
    return {chain_tiles, 4.0 * kRounds * 2 * tiles::kRows * tiles::kRows * 2 * tiles::kRows};
  if (bf16) return {chain_bf16_512, kSteps * 32};
  if (cpu_class() >= CpuClass::kAvx512) return {chain_fp32_512, kSteps * 16};
  if (cpu_class() >= CpuClass::kAvx2) return {chain_fp32_256, kSteps * 8};
  return {chain_fp32_128, kSteps * 4};
}

#elif defined(__aarch64__)

float chain_fp32_neon(float seed) {
  float32x4_t sums[kChains];
  for (auto& sum : sums) sum = vdupq_n_f32(seed);
  const float32x4_t a = vdupq_n_f32(0.999f), b = vdupq_n_f32(0.001f);
  for (int round = 0; round < kRounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) sums[i] = vfmaq_f32(b, sums[i], a);
  }
  float total = 0;
  for (auto& sum : sums) total += vaddvq_f32(sum);
  return total;
}

[[gnu::target("arch=armv8.2-a+bf16")]] float chain_bf16_neon(float seed) {
  float32x4_t sums[kChains];
  for (auto& sum : sums) sum = vdupq_n_f32(seed);
  // 0.98 and 0.001. Of rounder numbers GCC 12 makes instructions of fp16, which are not asked for.
  const bfloat16x8_t a = vreinterpretq_bf16_u16(vdupq_n_u16(0x3f7b)),
                     b = vreinterpretq_bf16_u16(vdupq_n_u16(0x3a83));
  for (int round = 0; round < kRounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) sums[i] = vbfdotq_f32(sums[i], a, b);
  }
  float total = 0;
  for (auto& sum : sums) total += vaddvq_f32(sum);
  return total;
}

Counted choose(bool bf16) {
  constexpr double kSteps = static_cast<double>(kChains) * kRounds * 2;
  if (bf16) return {chain_bf16_neon, kSteps * 8};
  return {chain_fp32_neon, kSteps * 4};
}

#else

float chain_fp32_plain(float seed) {
  float sums[kChains];
  for (auto& sum : sums) sum = seed;
  for (int round = 0; round < kRounds; ++round) {
    for (int i = 0; i < kChains; ++i) sums[i] = sums[i] * 0.999f + 0.001f;
  }
  float total = 0;
  for (auto& sum : sums) total += sum;
  return total;
}

Counted choose(bool) { return {chain_fp32_plain, static_cast<double>(kChains) * kRounds * 2}; }

#endif

/// Processor seconds of this thread: what it is interrupted for does not count.
double thread_now_s() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

/// Best rate of one thread: slower slices shared their core with another process or machine.
double best_rate(const Counted& kernel, int slices) {
  volatile float sink = 0;
  double best = 0;
  const double start = steady_now_s();
  for (int slice = 0; slice < slices && steady_now_s() - start < kDeadlineSeconds; ++slice) {
    const double begin = thread_now_s();
    double now = begin;
    int calls = 0;
    do {
      sink = sink + kernel.run(static_cast<float>(calls));
      ++calls;
      now = thread_now_s();
    } while (now - begin < kSliceSeconds);
    best = std::max(best, calls * kernel.flops / (now - begin));
  }
  return best;
}

double measure_cpu(bool bf16, size_t num_threads, int slices) {
  const Counted kernel = choose(bf16);
  std::vector<double> rates(num_threads, 0);
  // All at once: cores that share a power budget slow each other down, as they do in training.
  std::atomic<size_t> waiting{rates.size()};
  ThreadGroup threads;
  try {
    for (double& rate : rates) {
      threads.start([&kernel, &rate, &waiting, slices] {
        --waiting;
        while (waiting > 0) std::this_thread::yield();
        rate = best_rate(kernel, slices);
      });
    }
  } catch (...) {
    waiting -= rates.size() - threads.size();
    throw;
  }
  threads.join();
  return std::accumulate(rates.begin(), rates.end(), 0.0);
}

double measure_products(const at::Device& device, at::ScalarType type) {
  constexpr int64_t kSize = 4096;
  constexpr int kRuns = 8;
  const at::NoGradGuard no_grad;
  const at::Tensor a = at::full({kSize, kSize}, 0.01, at::TensorOptions(type).device(device));
  double best_s = 1e30;
  for (int run = 0; run < kRuns; ++run) {
    const double begin = steady_now_s();
    at::mm(a, a)[0][0].item<float>();  // waits for the device
    best_s = std::min(best_s, steady_now_s() - begin);
  }
  return 2.0 * kSize * kSize * kSize / best_s;
}

/// DEVICE_TFLOPS in FLOP/s; 0: not set.
double peak_from_environment() {
  const char* set = std::getenv("DEVICE_TFLOPS");
  if (!set || !*set) return 0;
  const std::string_view text = set;
  double tflops = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), tflops);
  if (error != std::errc() || end != text.data() + text.size() || !(tflops > 0) ||
      !std::isfinite(tflops)) {
    throw UsageError(tr("DEVICE_TFLOPS must be a number above 0 (TFLOP/s), got \"{}\"", text));
  }
  return tflops * 1e12;
}

}  // namespace

double peak_flops(const at::Device& device, at::ScalarType type) {
  if (const double set = peak_from_environment(); set > 0) return set;
  if (!device.is_cpu() && npu_is_open()) return npu_peak_flops(type);
  const at::ScalarType computed = multiplies_natively(device, type) ? type : at::kFloat;
  static std::mutex mutex;
  static std::map<std::pair<std::string, at::ScalarType>, double> measured;
  const std::lock_guard lock(mutex);
  double& known = measured[{device.str(), computed}];
  if (known == 0) {
    known = device.is_cpu()
                ? measure_cpu(computed == at::kBFloat16, default_thread_count(), kSlices)
                : measure_products(device, computed);
  }
  return known;
}

double cpu_flops_now(bool bf16, size_t threads, int slices) {
  return measure_cpu(bf16, threads, slices);
}

}  // namespace danlu::device
