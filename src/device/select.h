// device/select.h: which device a name on the command line means, and what it can do.
#pragma once
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <limits>
#include <string>

namespace danlu::device {

/// "cpu", "cuda:1", "cuda" (the card of this process among those of its machine), "npu:1", "npu",
/// "auto" (the same, where this libtorch has cards or CANN is there and has some, else the CPU). An
/// NPU is started. Errors: UsageError for a name that is none;
/// DeviceError when this libtorch cannot reach the device asked for. Never falls back to another
/// device.
at::Device select(const std::string& name, int64_t local_rank = 0);

/// The name by which select() takes the device: "cpu", "cuda:0", "npu:0". libtorch has no name for
/// NPUs.
std::string name_of(const at::Device& device);

/// True if libtorch's matrix products of this element type, of so many multiplications, are the
/// device's to compute with instructions for them (bf16 on CPUs: AVX512-BF16, but few; f16: none);
/// where they are not, what ops compute through libtorch is in f32, and rounded.
bool has_matmul(const at::Device& device, at::ScalarType type,
                int64_t multiplications = std::numeric_limits<int64_t>::max());

/// True if the kernels multiply many rows of this type as they are; else they widen them to f32, as
/// CPUs do f16, and bf16 where that is faster (base/cpu_class.h).
bool multiplies_natively(const at::Device& device, at::ScalarType type);

/// How the CPU's kernels multiply this type: "AVX2; bf16 products in fp32". Empty for other
/// devices.
std::string describe_products(const at::Device& device, at::ScalarType type);
/// Whose roundings results of this type have: the class of the processor, or the kind of device.
/// The same text in every language.
std::string arithmetic_of(const at::Device& device, at::ScalarType type);

}  // namespace danlu::device
