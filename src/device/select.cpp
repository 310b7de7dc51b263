#include "device/select.h"

#include <ATen/Context.h>

#include "base/cpu_class.h"
#include "base/error.h"
#include "base/message.h"

namespace danlu::device {

at::Device select(const std::string& name) {
  const at::Context& context = at::globalContext();
  if (name == "auto" || name.empty()) {
    return context.hasCUDA() ? at::Device(at::kCUDA, 0) : at::Device(at::kCPU);
  }
  if (name == "cpu") return at::Device(at::kCPU);
  if (name == "cuda" || name.rfind("cuda:", 0) == 0) {
    if (!context.hasCUDA()) {
      throw DeviceError(
          tr("[device] '{}' asked for, but this libtorch was built without CUDA or sees no card",
             name),
          tr("use --device cpu, or build with -DTorch_DIR=<libtorch with CUDA>"));
    }
    try {
      return name == "cuda" ? at::Device(at::kCUDA, 0) : at::Device(name);
    } catch (const c10::Error&) {
      throw UsageError(tr("[device] '{}' is not a device; write cuda:<number>", name));
    }
  }
  if (name == "npu" || name.rfind("npu:", 0) == 0) {
    throw DeviceError(
        tr("[device] '{}' asked for, but this build cannot open Ascend devices yet", name),
        tr("use --device cpu"));
  }
  throw UsageError(tr("[device] '{}' is not a device; known: auto, cpu, cuda[:n], npu[:n]", name));
}

bool has_matmul(const at::Device& device, at::ScalarType type) {
  if (!device.is_cpu()) return true;
  // libtorch multiplies bf16 on other processors by scalar code that also sums in bf16.
  if (type == at::kBFloat16) return cpu_class() >= CpuClass::kAvx512Bf16;
  return type != at::kHalf;
}

std::string describe_products(const at::Device& device, at::ScalarType type) {
  if (!device.is_cpu()) return "";
  const char* name = type == at::kBFloat16 ? "bf16" : type == at::kHalf ? "fp16" : nullptr;
  if (!name) return describe_cpu_class();
  return has_matmul(device, type) ? tr("{}; {} products native", describe_cpu_class(), name)
                                  : tr("{}; {} products in fp32", describe_cpu_class(), name);
}

}  // namespace danlu::device
