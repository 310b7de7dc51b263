// What libtorch has of NPUs: memory, views, copies, streams and events, as a PrivateUse1 device. It
// computes nothing there: what does is in the table of ops/backend.h, and any other operator is
// refused by its name. The name "npu" stays unknown to libtorch: the device would become torch 2's
// "the accelerator", which wants hooks.
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <utility>

#include "base/error.h"
#include "npu/context.h"
#include "npu/copies.h"
#include "npu/memory.h"
#include "npu/streams.h"
#include "npu/table.h"

namespace danlu::npu {
namespace {

constexpr auto kNpu = c10::DeviceType::PrivateUse1;

int index_of(const c10::Device& device) {
  return device.has_index() ? device.index() : current_device();
}

struct NpuGuard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kNpu; }
  c10::Device getDevice() const override {
    return {kNpu, static_cast<c10::DeviceIndex>(current_device())};
  }
  void setDevice(c10::Device device) const override { uncheckedSetDevice(device); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.has_index()) set_current_device(device.index());
  }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    try {
      return static_cast<c10::DeviceIndex>(device_count());
    } catch (const std::exception&) {
      return 0;
    }
  }

  c10::Stream getStream(c10::Device device) const noexcept override {
    const int index = index_of(device);
    return stream_at(index, current_stream(index));
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return stream_at(index_of(device), 0);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return stream_at(index_of(device), next_beside());
  }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override {
    const int index = stream.device_index();
    return stream_at(index, exchange_stream(index, stream.id()));
  }
  bool queryStream(const c10::Stream& stream) const override {
    return query(stream_of(stream.device_index(), stream.id()));
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    synchronize(stream_of(stream.device_index(), stream.id()));
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex,
              const c10::EventFlag) const override {
    const AclStream own = stream_of(stream.device_index(), stream.id());
    if (!*event) *event = new_event();
    npu::record(*event, own);
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event) wait_for_event(stream_of(stream.device_index(), stream.id()), event);
  }
  bool queryEvent(void* event) const override {
    if (!event) return true;
    if (entered() < 0) enter(current_device());
    return is_over(event);
  }
  void destroyEvent(void* event, const c10::DeviceIndex device) const noexcept override {
    try {
      if (entered() < 0) enter(device >= 0 ? device : current_device());
      destroy(event);
    } catch (const std::exception&) {  // the card is lost, and its events with it
    }
  }
  void recordDataPtrOnStream(const c10::DataPtr& memory, const c10::Stream& stream) const override {
    const Entered here(stream.device_index());
    hold(memory.get(), stream.id());
  }

 private:
  static c10::Stream stream_at(int device, c10::StreamId id) {
    return c10::Stream(c10::Stream::UNSAFE,
                       c10::Device(kNpu, static_cast<c10::DeviceIndex>(device)), id);
  }
};

REGISTER_ALLOCATOR(kNpu, &allocator());
C10_REGISTER_GUARD_IMPL(PrivateUse1, NpuGuard);

at::Tensor empty_on_npu(at::IntArrayRef size, c10::optional<at::ScalarType> type,
                        c10::optional<at::Layout>, c10::optional<at::Device> device,
                        c10::optional<bool>, c10::optional<at::MemoryFormat> format) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_generic(size, &allocator(),
                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(type), format);
}

at::Tensor empty_strided_on_npu(at::IntArrayRef size, at::IntArrayRef stride,
                                c10::optional<at::ScalarType> type, c10::optional<at::Layout>,
                                c10::optional<at::Device> device, c10::optional<bool>) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_strided_generic(size, stride, &allocator(),
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           c10::dtype_or_default(type));
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool) {
  copy(from, to);
  return to;
}

const at::Tensor& resize_on_npu(const at::Tensor& self, at::IntArrayRef size,
                                c10::optional<at::MemoryFormat>) {
  if (self.sizes() == size) return self;
  auto* const impl = self.unsafeGetTensorImpl();
  auto* const storage = self.storage().unsafeGetStorageImpl();
  const size_t bytes = at::detail::computeStorageNbytesContiguous(
      size, self.element_size(), static_cast<size_t>(self.storage_offset()));
  if (bytes > storage->nbytes()) {
    c10::DataPtr fresh = tensor_memory(self.device().index(), bytes);
    if (const size_t kept = storage->nbytes(); kept > 0)
      copy_bytes(self.device().index(), fresh.get(), storage->data_ptr().get(), kept);
    storage->set_data_ptr_noswap(std::move(fresh));
    storage->set_nbytes(bytes);
  }
  impl->set_sizes_contiguous(size);
  return self;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  resize_on_npu(to, from.sizes(), {});
  copy(from, to);
  return to;
}

at::Tensor& fill_on_npu(at::Tensor& self, const at::Scalar& value) {
  fill(self, value);
  return self;
}
at::Tensor& zero_on_npu(at::Tensor& self) { return fill_on_npu(self, 0); }

/// Autograd adds the gradients of a tensor that is read in two places, such as a tied table. Layers
/// spare it that (ops::shared_by); models that are compared with others' gradients do not.
at::Tensor& add_gradient(at::Tensor& self, const at::Tensor& other, const at::Scalar& factor) {
  if (self.sizes() != other.sizes() || self.scalar_type() != other.scalar_type() ||
      other.device() != self.device() || factor.to<double>() != 1.0) {
    throw DeviceError(tr("[npu] {} is not there for NPUs yet", "aten::add"),
                      tr("what needs it runs with --device cpu"));
  }
  add_into(self, self, other);
  return self;
}
at::Tensor sum_of_gradients(const at::Tensor& self, const at::Tensor& other,
                            const at::Scalar& factor) {
  at::Tensor sum = self.clone();
  return add_gradient(sum, other, factor);
}

void refuse(const c10::OperatorHandle& op, torch::jit::Stack*) {
  throw DeviceError(tr("[npu] {} is not there for NPUs yet", c10::toString(op.operator_name())),
                    tr("what needs it runs with --device cpu"));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty_on_npu);
  m.impl("empty_strided", &empty_strided_on_npu);
  m.impl("as_strided", &at::native::as_strided_tensorimpl);
  m.impl("view", &at::native::view);
  m.impl("_reshape_alias", &at::native::_reshape_alias);
  m.impl("resize_", &resize_on_npu);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("_local_scalar_dense", &only_number);
  m.impl("fill_.Scalar", &fill_on_npu);
  m.impl("zero_", &zero_on_npu);
  m.impl("add.Tensor", &sum_of_gradients);
  m.impl("add_.Tensor", &add_gradient);
}
TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse>());
}

}  // namespace
}  // namespace danlu::npu
