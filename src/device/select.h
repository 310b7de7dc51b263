// device/select.h: which device a name on the command line means, and what it can do.
#pragma once
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <string>

namespace danlu::device {

/// "cpu", "cuda", "cuda:1", "auto" (the first accelerator of this libtorch, else the CPU).
/// Errors: UsageError for a name that is none; DeviceError when this libtorch cannot reach the
/// device asked for. Never falls back to another device.
at::Device select(const std::string& name);

/// True if the device has instructions for matrix products of this element type (bf16 on CPUs:
/// AVX512-BF16; f16: none); where it has not, ops compute in f32 and round the result.
bool has_matmul(const at::Device& device, at::ScalarType type);

/// How the CPU multiplies this type: "AVX2; bf16 products in fp32". Empty for other devices.
std::string describe_products(const at::Device& device, at::ScalarType type);

}  // namespace danlu::device
