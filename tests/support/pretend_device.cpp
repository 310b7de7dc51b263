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
#include <c10/util/accumulate.h>
#include <torch/library.h>
#include <torch/version.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <utility>

#include "device/host_memory.h"
#include "device/memory.h"
#include "support/pretend_streams.h"

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

using BlockPtr = std::shared_ptr<PretendBlock>;

void release(void* context) {
  const std::unique_ptr<BlockPtr> block(static_cast<BlockPtr*>(context));
  counters()[static_cast<size_t>((*block)->device.index())].add(
      -static_cast<int64_t>((*block)->bytes));
  hand_back(*block);
}

/// A thread's current streams, by their numbers.
thread_local std::array<c10::StreamId, kPretendDevices> current_streams{};
c10::Stream current_stream(c10::Device device) {
  const c10::DeviceIndex index = device.has_index() ? device.index() : current;
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kType, index),
                     current_streams.at(static_cast<size_t>(index)));
}
PretendQueue& current_queue(c10::Device device) { return pretend_queue(current_stream(device)); }

/// On the thread's current device, as vendors' allocators do.
c10::DataPtr take(size_t bytes) {
  const c10::Device device(kType, current);
  if (bytes == 0) return {nullptr, device};
  constexpr size_t kLine = 64;
  void* memory = std::aligned_alloc(kLine, (bytes + kLine - 1) / kLine * kLine);
  if (!memory) throw std::bad_alloc();
  std::memset(memory, 0xff, bytes);
  auto* block =
      new BlockPtr(std::make_shared<PretendBlock>(memory, bytes, device, current_queue(device)));
  counters()[static_cast<size_t>(current)].add(static_cast<int64_t>(bytes));
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
  c10::DeviceIndex deviceCount() const noexcept override { return kPretendDevices; }

  c10::Stream getStream(c10::Device device) const noexcept override {
    return current_stream(device);
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  /// In turn, as CUDA's: who has asked for many shares some.
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    constexpr c10::StreamId kStreams = 16;
    static std::atomic<c10::StreamId> given = 0;
    return c10::Stream(c10::Stream::UNSAFE, device, 1 + given++ % kStreams);
  }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override {
    const c10::Stream before = current_stream(stream.device());
    current_streams.at(static_cast<size_t>(stream.device_index())) = stream.id();
    return before;
  }
  bool queryStream(const c10::Stream& stream) const override {
    return ask_for(place_in(pretend_queue(stream)));
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    do_until(place_in(pretend_queue(stream)));
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex,
              const c10::EventFlag) const override {
    if (!*event) *event = new PretendPlace;
    *static_cast<PretendPlace*>(*event) = place_in(pretend_queue(stream));
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event) wait_for(pretend_queue(stream), *static_cast<PretendPlace*>(event));
  }
  bool queryEvent(void* event) const override {
    return !event || ask_for(*static_cast<PretendPlace*>(event));
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<PretendPlace*>(event);
  }
  void recordDataPtrOnStream(const c10::DataPtr& memory, const c10::Stream& stream) const override {
    if (memory.get_context())
      hold(**static_cast<BlockPtr*>(memory.get_context()), pretend_queue(stream));
  }
};

// The name stays unregistered: the device would become torch 2's "the accelerator", which wants
// hooks.
REGISTER_ALLOCATOR(kType, &allocator());
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

PretendBlocks blocks_of(const at::TensorList& tensors) {
  PretendBlocks blocks;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined() || tensor.is_cpu()) continue;
    if (void* context = tensor.storage().data_ptr().get_context())
      blocks.push_back(*static_cast<BlockPtr*>(context));
  }
  return blocks;
}

/// The same memory as a tensor of the CPU, for work given to a queue. It keeps nothing.
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

/// Numbers and tensors that came to the host, or went to the device from memory that a card's
/// copies do not read while the host goes on: on a card each waits for it.
std::atomic<int64_t> waits = 0;
/// Whether they come to it to be computed with, which a card does itself.
thread_local bool computes_there = false;
void count_wait() { waits += computes_there ? 0 : 1; }

/// Memory of the host that the device reads and writes late, as a card does pinned memory.
struct PinnedMemory {
  std::mutex mutex;
  std::map<const char*, size_t> bytes_at;

  static PinnedMemory& get() {
    static auto* const one = new PinnedMemory;
    return *one;
  }
  bool has(const at::Tensor& tensor) {
    const std::lock_guard lock(mutex);
    const auto* const at = static_cast<const char*>(tensor.data_ptr());
    const auto after = bytes_at.upper_bound(at);
    return after != bytes_at.begin() && at < std::prev(after)->first + std::prev(after)->second;
  }
};

at::Tensor pinned_memory(at::IntArrayRef sizes, at::ScalarType type) {
  PinnedMemory& pinned = PinnedMemory::get();
  const size_t bytes = static_cast<size_t>(c10::multiply_integers(sizes)) * c10::elementSize(type);
  auto* const memory = new char[bytes];
  std::memset(memory, 0xff, bytes);
  const auto free = [&pinned, memory, bytes](void*) {
    const std::lock_guard lock(pinned.mutex);
    pinned.bytes_at.erase(memory);
    std::memset(memory, 0xff, bytes);
    delete[] memory;
  };
  const std::lock_guard lock(pinned.mutex);
  pinned.bytes_at[memory] = bytes;
  return at::from_blob(memory, sizes, free, at::TensorOptions(type));
}

std::atomic<int64_t> copies_beside = 0;

/// What a copy reads on the host, later. From pinned memory a card copies while the host goes on;
/// other memory is read at once, and the card has then done all that its stream was given.
at::Tensor read_of_host(const at::Tensor& from, bool non_blocking) {
  if (non_blocking && PinnedMemory::get().has(from)) return from.detach();
  count_wait();
  return from.detach().clone();
}

/// Every copy_ to, from and between devices, whatever the types and strides.
at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  const bool comes_to_host = to.is_cpu();
  const c10::Device device = comes_to_host ? from.device() : to.device();
  const at::Tensor read = from.is_cpu() ? read_of_host(from, non_blocking) : on_host(from);
  if (from.is_cpu() && current_stream(device).id() != 0) ++copies_beside;
  give(current_queue(device), "a copy", blocks_of({from, to}),
       [read, written = on_host(to)] { written.copy_(read); });
  if (comes_to_host && !(non_blocking && PinnedMemory::get().has(to))) {
    count_wait();
    do_until(place_in(current_queue(device)));
  }
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
    PretendBlocks blocks = blocks_of({self});
    blocks.push_back(*static_cast<BlockPtr*>(fresh.get_context()));
    give(current_queue(self.device()), "growing", std::move(blocks),
         [to = within_reach(fresh.get()), from = within_reach(storage->data_ptr().get()),
          old = storage->nbytes()] {
           if (old > 0) std::memcpy(to, from, old);
         });
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
  give(current_queue(self.device()), "filling", blocks_of({self}),
       [written = on_host(self), value] { written.fill_(value); });
  return self;
}
at::Tensor& zero(at::Tensor& self) { return fill(self, 0); }
at::Scalar item(const at::Tensor& self) {
  count_wait();
  do_until(place_in(current_queue(self.device())));
  return at::_local_scalar_dense(on_host(self));
}

std::atomic<bool> computes_aten = true;

/// Whether a card's own operator of ATen would make the host wait: the size of its result depends
/// on its values, which the host has to know.
bool waits_for_values(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  static const std::set<std::string> kWaiting = {
      "aten::nonzero",   "aten::masked_select",      "aten::_unique",
      "aten::_unique2",  "aten::unique_consecutive", "aten::unique_dim",
      "aten::bincount",  "aten::repeat_interleave",  "aten::equal",
      "aten::is_nonzero"};
  const std::string& name = op.operator_name().name;
  if (name == "aten::repeat_interleave") return op.operator_name().overload_name == "Tensor";
  if (kWaiting.count(name) > 0) return true;
  if (name.rfind("aten::index", 0) != 0) return false;
  // Where a mask chooses, which ones it chooses.
  for (const c10::IValue& value : torch::jit::last(stack, op.schema().arguments().size())) {
    if (!value.isList()) continue;
    for (const c10::IValue& one : value.toListRef()) {
      if (one.isTensor() && one.toTensor().defined() &&
          (one.toTensor().scalar_type() == at::kBool || one.toTensor().scalar_type() == at::kByte))
        return true;
    }
  }
  return false;
}

/// ATen's fallback leaves lists of optional tensors, such as indices, on the device.
void indices_to_host(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const size_t count = op.schema().arguments().size();
  for (size_t i = stack.size() - count; i < stack.size(); ++i) {
    if (!stack[i].isOptionalTensorList()) continue;
    c10::List<c10::optional<at::Tensor>> on_host;
    for (const c10::optional<at::Tensor>& one : stack[i].toOptionalTensorList().vec())
      on_host.push_back(one && one->defined() ? one->to(at::kCPU) : one);
    stack[i] = std::move(on_host);
  }
}

void compute_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  TORCH_CHECK(computes_aten, "the pretend device computes nothing through aten, and was asked for ",
              op.operator_name());
  for (const c10::Argument& result : op.schema().returns()) {
    const bool is_view = result.alias_info() && !result.alias_info()->isWrite();
    TORCH_CHECK(!is_view, "the pretend device has no ", op.operator_name(), ", which gives a view");
  }
  if (waits_for_values(op, *stack)) count_wait();
  const bool before = std::exchange(computes_there, true);
  indices_to_host(op, *stack);
  try {
    at::native::cpu_fallback(op, stack);
  } catch (...) {
    computes_there = before;
    throw;
  }
  computes_there = before;
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

const bool is_reported = [] {
  device::set_memory_counter(
      kType, {[](const c10::Device& d) { return pretend_bytes(d.index()); },
              [](const c10::Device& d) { return pretend_peak(d.index()); },
              [](const c10::Device& d) { reset_pretend_peak(d.index()); }, nullptr,
              // Whole pieces of a megabyte are kept, as a caching allocator keeps them.
              [](const c10::Device& d) -> device::AllocatorFigures {
                constexpr int64_t kPiece = 1 << 20;
                return {(pretend_peak(d.index()) + kPiece - 1) / kPiece * kPiece, 2};
              }});
  device::set_pinned_memory(kType, &pinned_memory);
  return true;
}();

}  // namespace pretend_detail

at::Tensor pretend_memory(const at::Tensor& tensor) { return pretend_detail::on_host(tensor); }
void give_pretend_device(const c10::Device& device, const char* what,
                         const std::vector<at::Tensor>& uses, std::function<void()> work) {
  give(pretend_detail::current_queue(device), what, pretend_detail::blocks_of(uses),
       std::move(work));
}
void wait_for_pretend_stream(const c10::Device& device) {
  do_until(place_in(pretend_detail::current_queue(device)));
}
void wait_for_pretend_devices() {
  for (int index = 0; index < kPretendDevices; ++index) do_all(pretend_device(index));
}
void set_pretend_aten(bool computes) { pretend_detail::computes_aten = computes; }

c10::Device pretend_device(int index) {
  return {pretend_detail::kType, static_cast<c10::DeviceIndex>(index)};
}
int64_t pretend_waits() { return pretend_detail::waits; }
int64_t pretend_copies_beside() { return pretend_detail::copies_beside; }
int64_t pretend_bytes(int index) { return pretend_detail::counter(index).bytes; }
int64_t pretend_peak(int index) { return pretend_detail::counter(index).peak; }
void reset_pretend_peak(int index) {
  auto& counter = pretend_detail::counter(index);
  counter.peak = counter.bytes.load();
}

}  // namespace danlu::test
