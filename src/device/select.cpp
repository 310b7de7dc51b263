#include "device/select.h"

#include <ATen/Context.h>

#include <charconv>
#include <cstdlib>
#include <filesystem>

#include "base/cpu_class.h"
#include "base/error.h"
#include "base/failure_reader.h"
#include "base/message.h"
#include "device/cuda_failures.h"
#include "device/npu.h"

namespace danlu::device {

namespace {

/// The card that a name means, started. "npu": the one of this process among those of its machine;
/// a launcher may show each process its own card alone.
at::Device npu_named(const std::string& name, int64_t local_rank) {
  int64_t index = local_rank;
  if (name != "npu") {
    const std::string number = name.substr(4);
    const char* const end = number.data() + number.size();
    const auto [stop, error] = std::from_chars(number.data(), end, index);
    if (number.empty() || error != std::errc() || stop != end || index < 0)
      throw UsageError(tr("[device] '{}' is not a device; write npu:<number>", name));
  }
  const int64_t cards = npu_count();
  if (name == "npu" && cards == 1 && std::getenv("ASCEND_RT_VISIBLE_DEVICES")) index = 0;
  if (index >= cards) {
    throw DeviceError(tr("[device] there is no npu:{}: this process sees {} NPUs", index, cards),
                      tr("npu-smi info lists the cards; ASCEND_RT_VISIBLE_DEVICES hides some"));
  }
  open_npu(index);
  return {c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(index)};
}

DeviceError no_cuda(const std::string& name) {
  if (!at::Context::hasCUDART()) {
    return DeviceError(
        tr("[device] '{}' asked for, but this program's libtorch was built without CUDA", name),
        tr("use --device cpu, or build with -DTorch_DIR=<libtorch with CUDA>"));
  }
  return DeviceError(
      tr("[device] '{}' asked for, but this process sees no NVIDIA GPU", name),
      tr("danlu doctor --only cuda says what is there; CUDA_VISIBLE_DEVICES hides cards; "
         "--device cpu needs none"));
}

at::Device cuda_numbered(const std::string& name) {
  try {
    const at::Device device(name);
    const auto cards = static_cast<int64_t>(at::getNumGPUs());
    if (device.index() < cards) return device;
    throw DeviceError(tr("[device] there is no {}: this process sees {} NVIDIA GPUs", name, cards),
                      tr("nvidia-smi -L lists the cards; CUDA_VISIBLE_DEVICES hides some"));
  } catch (const c10::Error&) {
    throw UsageError(tr("[device] '{}' is not a device; write cuda:<number>", name));
  }
}

/// Whether it is worth a look: machines without CANN open no library for it.
bool may_have_npus() {
  for (const char* name : {"DANLU_NPU_LIBRARY", "ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"}) {
    if (std::getenv(name)) return true;
  }
  return std::filesystem::exists("/usr/local/Ascend/ascend-toolkit") ||
         std::filesystem::exists("/usr/local/Ascend/cann");
}

}  // namespace

std::string name_of(const at::Device& device) {
  if (device.type() != c10::DeviceType::PrivateUse1 || !npu_is_open()) return device.str();
  return "npu:" + std::to_string(int{device.index()});
}

at::Device select(const std::string& name, int64_t local_rank) {
  const at::Context& context = at::globalContext();
  if (context.hasCUDA()) set_failure_reader(&cuda_failure);
  const auto own_card = [&] {
    const auto cards = static_cast<int64_t>(at::getNumGPUs());
    // A launcher may show each process its own card alone.
    if (cards == 1 && std::getenv("CUDA_VISIBLE_DEVICES")) return at::Device(at::kCUDA, 0);
    if (local_rank < cards) return at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(local_rank));
    throw DeviceError(
        tr("[device] this machine's process {} has no card: there are {}", local_rank, cards),
        tr("start as many processes on a machine as it has cards"));
  };
  if (name == "auto" || name.empty()) {
    if (context.hasCUDA()) return own_card();
    return may_have_npus() && npu_count_or_none() > 0 ? npu_named("npu", local_rank)
                                                      : at::Device(at::kCPU);
  }
  if (name == "cpu") return at::Device(at::kCPU);
  if (name == "cuda" || name.rfind("cuda:", 0) == 0) {
    if (!context.hasCUDA()) throw no_cuda(name);
    if (name == "cuda") return own_card();
    return cuda_numbered(name);
  }
  if (name == "npu" || name.rfind("npu:", 0) == 0) return npu_named(name, local_rank);
  throw UsageError(tr("[device] '{}' is not a device; known: auto, cpu, cuda[:n], npu[:n]", name));
}

bool has_matmul(const at::Device& device, at::ScalarType type, int64_t multiplications) {
  if (!device.is_cpu()) return true;
  // libtorch multiplies bf16 on other processors, and few numbers on any, by scalar code that also
  // sums in bf16: from here on it asks oneDNN (1.13).
  constexpr int64_t kFewForOneDnn = 16 * 16 * 16;
  if (type == at::kBFloat16) return libtorch_has_bf16_dots() && multiplications > kFewForOneDnn;
  return type != at::kHalf;
}

bool multiplies_natively(const at::Device& device, at::ScalarType type) {
  if (!device.is_cpu()) return true;
  return type == at::kBFloat16 ? multiplies_bf16_faster() : type != at::kHalf;
}

std::string arithmetic_of(const at::Device& device, at::ScalarType type) {
  if (!device.is_cpu() && npu_is_open()) return npu_chip();
  if (!device.is_cpu()) return c10::DeviceTypeName(device.type(), true);
  if (type == at::kBFloat16 && has_bf16_dots() && !multiplies_bf16_faster())
    return "AVX-512 with bf16, products in fp32";
  return name_of(cpu_class());
}

std::string describe_products(const at::Device& device, at::ScalarType type) {
  if (!device.is_cpu()) return "";
  const char* name = type == at::kBFloat16 ? "bf16" : type == at::kHalf ? "fp16" : nullptr;
  if (!name) return describe_cpu_class();
  return multiplies_natively(device, type)
             ? tr("{}; {} products native", describe_cpu_class(), name)
             : tr("{}; {} products in fp32", describe_cpu_class(), name);
}

}  // namespace danlu::device
