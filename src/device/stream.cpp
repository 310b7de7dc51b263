#include "device/stream.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace danlu::device {

using c10::impl::VirtualGuardImpl;

bool Event::is_over() const { return !event_ || event_->query(); }

void Event::wait() const {
  // c10 has no waiting for events before torch 2.4, only asking.
  using std::chrono::microseconds;
  for (microseconds pause{5}; !is_over(); pause = std::min(2 * pause, microseconds(200)))
    std::this_thread::sleep_for(pause);
}

Stream Stream::current(const at::Device& device) {
  if (device.is_cpu()) return Stream(std::nullopt);
  return Stream(VirtualGuardImpl(device.type()).getStream(device));
}

Stream Stream::beside(const at::Device& device) {
  if (device.is_cpu()) return Stream(std::nullopt);
  return Stream(VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device));
}

Event Stream::record() const {
  if (!stream_) return {};
  auto event = std::make_shared<c10::Event>(stream_->device_type());
  event->record(*stream_);
  return Event(std::move(event));
}

void Stream::wait_for(const Event& event) const {
  if (stream_ && event.event_) event.event_->block(*stream_);
}

void Stream::synchronize() const {
  if (stream_) stream_->synchronize();
}

void Stream::hold(const at::Tensor& tensor) const {
  if (!stream_ || !tensor.defined() || tensor.is_cpu()) return;
  const at::DataPtr& memory = tensor.storage().data_ptr();
  if (memory) VirtualGuardImpl(stream_->device_type()).recordDataPtrOnStream(memory, *stream_);
}

Stream::InForce::InForce(const Stream& stream) {
  if (stream.stream_)
    before_ = VirtualGuardImpl(stream.stream_->device_type()).exchangeStream(*stream.stream_);
}

Stream::InForce::~InForce() {
  if (before_) VirtualGuardImpl(before_->device_type()).exchangeStream(*before_);
}

}  // namespace danlu::device
