#include "device/npu.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <atomic>
#include <string_view>

#include "base/error.h"
#include "base/own_library.h"

namespace danlu::device {
namespace {

std::string& other_npu_plugin() {
  static std::string path;
  return path;
}

void* open_npu_plugin() {
  const std::filesystem::path path = other_npu_plugin().empty()
                                         ? own_library("libdanlu_npu.so")
                                         : std::filesystem::path(other_npu_plugin());
  // Never closed: it registers functions with libtorch.
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* const why = ::dlerror();
    throw DeviceError(tr("[npu] cannot open {}: {}", path.string(), why ? why : "?"),
                      tr("`make build` makes it"));
  }
  return library;
}

template <typename Function>
Function from_npu_plugin(const char* name) {
  static void* const library = open_npu_plugin();
  void* const symbol = ::dlsym(library, name);
  if (!symbol) throw InternalError(fmt::format("[npu] the plug-in lacks {}", name));
  return reinterpret_cast<Function>(symbol);
}

std::atomic<bool> is_open = false;
std::atomic<int64_t> opened_index = 0;

}  // namespace

void use_npu_plugin(const std::string& path) { other_npu_plugin() = path; }

int64_t npu_count_or_none() { return from_npu_plugin<int (*)(bool)>("danlu_npu_count")(true); }
int64_t npu_count() { return from_npu_plugin<int (*)(bool)>("danlu_npu_count")(false); }

void open_npu(int64_t index) {
  from_npu_plugin<void (*)(int)>("danlu_npu_open")(static_cast<int>(index));
  opened_index = index;
  is_open = true;
}
bool npu_is_open() { return is_open; }
int64_t npu_index() { return opened_index; }

std::string npu_chip() {
  const std::string chip = from_npu_plugin<const char* (*)()>("danlu_npu_chip")();
  const bool is_simulated = from_npu_plugin<bool (*)()>("danlu_npu_is_simulated")();
  return is_simulated ? "NPU SIMULATOR " + chip : chip;
}

double npu_peak_flops(c10::ScalarType type) {
  struct Chip {
    std::string_view name;
    double tflops;
  };
  static constexpr Chip kChips[] = {
      {"Ascend910B1", 364},    {"Ascend910B2C", 354},   {"Ascend910B2", 354},
      {"Ascend910B3", 295},    {"Ascend910B4", 246},    {"Ascend910B4-1", 246},
      {"Ascend910_9391", 364}, {"Ascend910_9392", 364}, {"Ascend910_9381", 354},
      {"Ascend910_9382", 354}, {"Ascend910_9372", 295}, {"Ascend910_9362", 295},
  };
  if (type != c10::ScalarType::BFloat16 && type != c10::ScalarType::Half) return 0;
  for (const Chip& chip : kChips) {
    if (npu_chip() == chip.name) return chip.tflops * 1e12;
  }
  return 0;
}

int64_t npu_waits() { return from_npu_plugin<int64_t (*)()>("danlu_npu_waits")(); }

std::vector<uint8_t> NpuCommunicator::new_root() {
  std::vector<uint8_t> root(kRootBytes);
  from_npu_plugin<void (*)(char*)>("danlu_npu_new_root")(reinterpret_cast<char*>(root.data()));
  return root;
}

NpuCommunicator::NpuCommunicator(const std::vector<uint8_t>& root, int64_t size, int64_t rank,
                                 int64_t device)
    : own_(from_npu_plugin<void* (*)(const char*, uint32_t, uint32_t, int)>("danlu_npu_connect")(
          reinterpret_cast<const char*>(root.data()), static_cast<uint32_t>(size),
          static_cast<uint32_t>(rank), static_cast<int>(device))) {}

NpuCommunicator::~NpuCommunicator() {
  from_npu_plugin<void (*)(void*)>("danlu_npu_disconnect")(own_);
}

void NpuCommunicator::exchange(const std::vector<Transfer>& transfers) {
  using Exchange = void (*)(void*, const Transfer*, size_t);
  from_npu_plugin<Exchange>("danlu_npu_exchange")(own_, transfers.data(), transfers.size());
}

NpuCommunicator::Progress NpuCommunicator::progress() const {
  Progress progress;
  using Ask = const char* (*)(void*, int64_t*, int64_t*);
  progress.failure =
      from_npu_plugin<Ask>("danlu_npu_progress")(own_, &progress.begun, &progress.over);
  return progress;
}

void close_npus() {
  if (is_open.exchange(false)) from_npu_plugin<void (*)()>("danlu_npu_close")();
}

}  // namespace danlu::device
