// device/peak.h: how many floating point operations a second this machine can do: what MFU divides
// by.
#pragma once

namespace danlu::device {

enum class PeakKind { kFp32, kBf16 };

/// FLOP/s of all threads this process may use, measured once per process in at most 50 ms with
/// chains of fused multiply-adds that stay in registers. kBf16 uses the CPU's bf16 dot products
/// (AVX512-BF16); a CPU without them computes bf16 models in fp32, and the fp32 figure is the peak.
/// DEVICE_TFLOPS (a number above 0, in TFLOP/s) replaces the measurement.
/// Errors: UsageError if DEVICE_TFLOPS is not such a number.
double peak_flops(PeakKind kind);

/// The measurement itself, without cache and environment.
double measure_peak_flops(PeakKind kind);

}  // namespace danlu::device
