// device/select.h: which device a name on the command line means, and what it can do.
#pragma once
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <limits>
#include <string>

namespace danlu::device {

/// "cpu", "cuda:1", "cuda" (the card of this process among those of its machine), "auto" (the same,
/// where this libtorch has cards, else the CPU). Errors: UsageError for a name that is none;
/// DeviceError when this libtorch cannot reach the device asked for. Never falls back to another
/// device.
at::Device select(const std::string& name, int64_t local_rank = 0);

/// True if matrix products of this element type, of so many multiplications, are the device's to
/// compute with instructions for them (bf16 on CPUs: AVX512-BF16, but few; f16: none); where they
/// are not, ops compute in f32 and round the result.
bool has_matmul(const at::Device& device, at::ScalarType type,
                int64_t multiplications = std::numeric_limits<int64_t>::max());

/// How the CPU multiplies this type: "AVX2; bf16 products in fp32". Empty for other devices.
std::string describe_products(const at::Device& device, at::ScalarType type);
/// Whose roundings results have: the class of the processor, or the kind of device. The same text
/// in every language.
std::string arithmetic_of(const at::Device& device);

}  // namespace danlu::device
