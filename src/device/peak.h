// device/peak.h: how many floating point operations a second a device can do: what MFU divides by.
#pragma once
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstddef>

namespace danlu::device {

/// FLOP/s, measured once per process, device and type.
/// CPU: all threads this process may use, in at most 50 ms, with chains of fused multiply-adds that
/// stay in registers; bf16 with AVX512-BF16's dot products or AMX's tiles. A type that is widened
/// (multiplies_natively) is computed in f32, and that is its peak.
/// Accelerators: the best of a few large matrix products in the type.
/// DEVICE_TFLOPS (a number above 0, in TFLOP/s) replaces the measurement.
/// Errors: UsageError if DEVICE_TFLOPS is not such a number.
double peak_flops(const at::Device& device, at::ScalarType type);

/// The same of so many threads of the CPU in this moment, in about `slices` times 2 ms: the best of
/// the slices, summed over threads. bf16: REQUIRES has_bf16_dots(); its own even where it is
/// widened. No variable replaces it.
double cpu_flops_now(bool bf16, size_t threads, int slices);

}  // namespace danlu::device
