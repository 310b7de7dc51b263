#include "support/pretend_device.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/view_native.h>
#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Optional.h>
#include <torch/library.h>
#include <torch/version.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

namespace danlu::test {
namespace pretend_detail {

constexpr auto kType = c10::DeviceType::PrivateUse1;

struct Counter {
  std::atomic<int64_t> bytes{0}, peak{0};
  void add(int64_t more) {
    const int64_t now = bytes += more;
    for (int64_t seen = peak; now > seen && !peak.compare_exchange_weak(seen, now);) continue;
  }
};
// Tensors that live as long as the process come back after every static object is gone.
std::array<Counter, kPretendDevices>& counters() {
  static auto* const all = new std::array<Counter, kPretendDevices>;
  return *all;
}

thread_local c10::DeviceIndex current = 0;

/// Above every address of a process, on x86-64 and aarch64.
constexpr uintptr_t kOutOfReach = uintptr_t{1} << 52;
void* out_of_reach(void* host) {
  return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(host) + kOutOfReach);
}
void* within_reach(const void* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  return reinterpret_cast<void*>(address ? address - kOutOfReach : 0);
}

struct Block {
  void* memory;
  int64_t bytes;
  c10::DeviceIndex device;
};

void release(void* context) {
  const auto* block = static_cast<Block*>(context);
  counters()[static_cast<size_t>(block->device)].add(-block->bytes);
  std::free(block->memory);
  delete block;
}

/// On the thread's current device, as vendors' allocators do.
c10::DataPtr take(size_t bytes) {
  const c10::Device device(kType, current);
  if (bytes == 0) return {nullptr, device};
  constexpr size_t kLine = 64;
  void* memory = std::aligned_alloc(kLine, (bytes + kLine - 1) / kLine * kLine);
  if (!memory) throw std::bad_alloc();
  std::memset(memory, 0xff, bytes);
  auto* block = new Block{memory, static_cast<int64_t>(bytes), current};
  counters()[static_cast<size_t>(current)].add(block->bytes);
  return {out_of_reach(memory), block, &release, device};
}

struct Allocator : c10::Allocator {
#if TORCH_VERSION_MAJOR >= 2
  c10::DataPtr allocate(size_t bytes) override { return take(bytes); }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(within_reach(to), within_reach(from), bytes);
  }
#else
  c10::DataPtr allocate(size_t bytes) const override { return take(bytes); }
#endif
};
Allocator& allocator() {
  static auto* const one = new Allocator;
  return *one;
}

/// One stream a device, which is always done.
struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }
  c10::Device getDevice() const override { return {kType, current}; }
  void setDevice(c10::Device device) const override { uncheckedSetDevice(device); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.has_index()) current = device.index();
  }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Stream getStream(c10::Device device) const noexcept override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream getDefaultStream(c10::Device device) const override { return getStream(device); }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override {
    return getStream(stream.device());
  }
  c10::DeviceIndex deviceCount() const noexcept override { return kPretendDevices; }
};

// The name stays unregistered: the device would become torch 2's "the accelerator", which wants
// hooks.
REGISTER_ALLOCATOR(kType, &allocator());
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

/// The same memory as a tensor of the CPU.
at::Tensor on_host(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return tensor.detach();
  TORCH_CHECK(tensor.storage().device() == tensor.device(), "a tensor of ", tensor.device(),
              " in memory of ", tensor.storage().device());
  return at::from_blob(within_reach(tensor.data_ptr()), tensor.sizes(), tensor.strides(),
                       at::TensorOptions(tensor.scalar_type()));
}

at::Tensor empty(at::IntArrayRef size, c10::optional<at::ScalarType> type,
                 c10::optional<at::Layout>, c10::optional<at::Device> device, c10::optional<bool>,
                 c10::optional<at::MemoryFormat> format) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_generic(size, &allocator(),
                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(type), format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride,
                         c10::optional<at::ScalarType> type, c10::optional<at::Layout>,
                         c10::optional<at::Device> device, c10::optional<bool>) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_strided_generic(size, stride, &allocator(),
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           c10::dtype_or_default(type));
}

/// Numbers and tensors that came to the host, which on a card waits for it.
std::atomic<int64_t> waits = 0;

/// Every copy_ to, from and between devices, whatever the types and strides.
at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool) {
  waits += to.is_cpu();
  on_host(to).copy_(on_host(from));
  return to;
}

const at::Tensor& resize(const at::Tensor& self, at::IntArrayRef size,
                         c10::optional<at::MemoryFormat>) {
  if (self.sizes() == size) return self;
  auto* impl = self.unsafeGetTensorImpl();
  auto* storage = self.storage().unsafeGetStorageImpl();
  const size_t bytes = at::detail::computeStorageNbytesContiguous(
      size, self.element_size(), static_cast<size_t>(self.storage_offset()));
  if (bytes > storage->nbytes()) {
    const c10::DeviceGuard guard(self.device());
    c10::DataPtr fresh = take(bytes);
    std::memcpy(within_reach(fresh.get()), within_reach(storage->data_ptr().get()),
                storage->nbytes());
    storage->set_data_ptr_noswap(std::move(fresh));
    storage->set_nbytes(bytes);
  }
  impl->set_sizes_contiguous(size);
  return self;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  resize(to, from.sizes(), {});
  return copy_from(from, to, false);
}

at::Tensor& fill(at::Tensor& self, const at::Scalar& value) {
  on_host(self).fill_(value);
  return self;
}
at::Tensor& zero(at::Tensor& self) { return fill(self, 0); }
at::Scalar item(const at::Tensor& self) {
  ++waits;
  return at::_local_scalar_dense(on_host(self));
}

std::atomic<bool> computes_aten = true;

void compute_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  TORCH_CHECK(computes_aten, "the pretend device computes nothing through aten, and was asked for ",
              op.operator_name());
  for (const c10::Argument& result : op.schema().returns()) {
    const bool is_view = result.alias_info() && !result.alias_info()->isWrite();
    TORCH_CHECK(!is_view, "the pretend device has no ", op.operator_name(), ", which gives a view");
  }
  at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("as_strided", &at::native::as_strided_tensorimpl);
  m.impl("view", &at::native::view);
  m.impl("_reshape_alias", &at::native::_reshape_alias);
  m.impl("resize_", &resize);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("_local_scalar_dense", &item);
  m.impl("fill_.Scalar", &fill);
  m.impl("zero_", &zero);
}
TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&compute_on_host>());
}

Counter& counter(int index) { return counters().at(static_cast<size_t>(index)); }

}  // namespace pretend_detail

at::Tensor pretend_memory(const at::Tensor& tensor) { return pretend_detail::on_host(tensor); }
void set_pretend_aten(bool computes) { pretend_detail::computes_aten = computes; }

c10::Device pretend_device(int index) {
  return {pretend_detail::kType, static_cast<c10::DeviceIndex>(index)};
}
int64_t pretend_waits() { return pretend_detail::waits; }
int64_t pretend_bytes(int index) { return pretend_detail::counter(index).bytes; }
int64_t pretend_peak(int index) { return pretend_detail::counter(index).peak; }
void reset_pretend_peak(int index) {
  auto& counter = pretend_detail::counter(index);
  counter.peak = counter.bytes.load();
}

}  // namespace danlu::test
